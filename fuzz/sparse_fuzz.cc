// A part of a sparse gradient as any bytes at all: every holder of the job key can send any bytes.
// The first two bytes are the length of the vector. An accepted part must lie inside the vector,
// and come out the same when it is encoded again.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include <sluice/data/codec/sparse.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::codec;
  if (size < 2) return 0;
  const size_t elements = data[0] + 256U * data[1];
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(2);
  std::vector<float> sum(elements);
  std::vector<uint32_t> places;
  const auto decoded = decodeSparse(bytes, elements);
  if (addSparse(bytes, sum, places).isOk() != decoded.isOk()) std::abort();
  if (!decoded.isOk()) return 0;
  const bool isInside =
      decoded->places.size() == decoded->values.size() &&
      std::ranges::all_of(decoded->places, [&](uint32_t place) { return place < elements; }) &&
      std::ranges::adjacent_find(decoded->places, std::greater_equal<>()) == decoded->places.end();
  if (!isInside) std::abort();
  std::vector<float> values(elements);
  setSparse(*decoded, std::as_writable_bytes(std::span(values)));
  const auto again = decodeSparse(encodeSparse(values, decoded->places), elements);
  if (!again.isOk()) std::abort();
  std::vector<float> same(elements);
  setSparse(*again, std::as_writable_bytes(std::span(same)));
  if (elements > 0 && std::memcmp(values.data(), same.data(), 4 * elements) != 0) std::abort();
  return 0;
}
