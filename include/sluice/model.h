/// @file
/// The tensors that are trained together, and where their bytes lie. Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/status.h>

namespace sluice {

// Ids are types of their own, so that a rank cannot be passed where a tensor is meant.
/// A process of the job: 0 .. world size - 1.
enum class Rank : uint32_t {};
/// The members of the job: counts up whenever ranks come or go.
enum class Epoch : uint32_t {};
/// One training iteration.
enum class Step : uint64_t {};
/// A tensor of the model, numbered in the order of the forward pass.
enum class TensorId : uint32_t {};
/// A part of a tensor that travels by itself, numbered over all tensors.
enum class SliceId : uint32_t {};

/// Returns the plain number behind an id, for arithmetic, indexing and printing.
constexpr uint32_t index(Rank rank) {
  return static_cast<uint32_t>(rank);
}
/// Returns the number of an epoch.
constexpr uint32_t index(Epoch epoch) {
  return static_cast<uint32_t>(epoch);
}
/// Returns the number of a step.
constexpr uint64_t index(Step step) {
  return static_cast<uint64_t>(step);
}
/// Returns the number of a tensor.
constexpr uint32_t index(TensorId tensor) {
  return static_cast<uint32_t>(tensor);
}
/// Returns the number of a slice.
constexpr uint32_t index(SliceId slice) {
  return static_cast<uint32_t>(slice);
}

/// The number formats of tensors. The values are part of the wire format and never change.
enum class DType : uint8_t {
  kBytes = 0,  ///< Opaque bytes, without arithmetic.
  kF32 = 1,    ///< IEEE single precision.
  kF64 = 2,    ///< IEEE double precision.
  kBF16 = 3,   ///< bfloat16.
  kF16 = 4,    ///< IEEE half precision.
};

/// Returns the bytes of one element.
constexpr size_t sizeOf(DType dtype) {
  switch (dtype) {
    case DType::kBytes: return 1;
    case DType::kF32: return 4;
    case DType::kF64: return 8;
    case DType::kBF16:
    case DType::kF16: return 2;
  }
  return 0;
}

/// Returns the short name of a format: "f32".
constexpr std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::kBytes: return "bytes";
    case DType::kF32: return "f32";
    case DType::kF64: return "f64";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
  }
  return "?";
}

/// One tensor of the model.
struct SLUICE_API Tensor {
  std::string name{};         ///< Names the tensor in errors, traces and checkpoints.
  uint64_t elements = 0;      ///< Counts its elements; at least one.
  DType dtype = DType::kF32;  ///< Says how they are stored.

  /// Returns its size in bytes.
  uint64_t bytes() const { return elements * sizeOf(dtype); }
  /// Returns a text for people: "'conv1.weight' 9408 f32".
  std::string toString() const;
  /// Compares all fields.
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

/// The tensors that are trained, in the order in which the forward pass uses them. The same on
/// every rank.
struct SLUICE_API Model {
  std::vector<Tensor> tensors{};  ///< Holds tensor `id` at index(id).

  /// Returns one tensor.
  const Tensor& operator[](TensorId id) const { return tensors[index(id)]; }
  /// Returns the elements of all tensors.
  uint64_t elements() const;
  /// Returns the bytes of all tensors.
  uint64_t bytes() const;
  /// Returns a text for people: "161 tensors, 25557032 elements, 97.5 MiB".
  std::string toString() const;
  /// Compares all tensors.
  friend bool operator==(const Model&, const Model&) = default;
};

/// The kind of memory that a tensor lies in. There is only one kind today; code that asks for the
/// kind is ready for others.
enum class MemoryKind : uint8_t {
  kHost,  ///< Ordinary memory of the process.
};

/// The memory of one tensor at one worker.
struct TensorMemory {
  std::span<const std::byte> gradient{};  ///< Holds the gradient that this rank contributes.
  std::span<std::byte> result{};  ///< Receives the mean or the new parameters; may be `gradient`.
  std::shared_ptr<const void> owner{};  ///< Keeps the memory alive until no more bytes can arrive.
  MemoryKind kind = MemoryKind::kHost;  ///< Says which kind of memory both are in.
};

}  // namespace sluice
