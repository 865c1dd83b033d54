#include <sluice/pytorch/backend/tensors.h>

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

namespace sluice::pytorch {
namespace {

// A chunk is too small for Torch to split over its own threads, to which the loop's thread does not
// belong. It is also small enough that the sum stays in the cache.
constexpr int64_t kChunk = 16384;

const char* nameOf(Reduction reduction) {
  switch (reduction) {
    case c10d::ReduceOp::SUM: return "SUM";
    case c10d::ReduceOp::AVG: return "AVG";
    case c10d::ReduceOp::PRODUCT: return "PRODUCT";
    case c10d::ReduceOp::MIN: return "MIN";
    case c10d::ReduceOp::MAX: return "MAX";
    case c10d::ReduceOp::BAND: return "BAND";
    case c10d::ReduceOp::BOR: return "BOR";
    case c10d::ReduceOp::BXOR: return "BXOR";
    case c10d::ReduceOp::PREMUL_SUM: return "PREMUL_SUM";
    case c10d::ReduceOp::UNUSED: break;
  }
  return "?";
}

void reduceInto(Reduction reduction, at::Tensor& sum, const at::Tensor& part) {
  switch (reduction) {
    case c10d::ReduceOp::PRODUCT: sum.mul_(part); return;
    case c10d::ReduceOp::MIN: at::minimum_out(sum, sum, part); return;
    case c10d::ReduceOp::MAX: at::maximum_out(sum, sum, part); return;
    case c10d::ReduceOp::BAND: sum.bitwise_and_(part); return;
    case c10d::ReduceOp::BOR: sum.bitwise_or_(part); return;
    case c10d::ReduceOp::BXOR: sum.bitwise_xor_(part); return;
    default: sum.add_(part); return;
  }
}

}  // namespace

std::span<std::byte> bytesOf(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

at::Tensor Operands::reads(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), "sluice: no tensor was given");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "sluice: a tensor is ", tensor.layout(),
                    ", but only dense ones are taken; use .to_dense()");
  const at::AutoDispatchBelowADInplaceOrView noGradients;
  if (!tensor.device().is_cpu()) return readsOnDevice(tensor);
  // A tensor that lies in one piece is used as it is, so the fabric reads and writes the user's
  // memory directly. Any other is copied, and copyBack() brings results back into its own
  // shape.
  auto flat = tensor.contiguous().view({-1});
  kept_.push_back(flat);
  return flat;
}

at::Tensor Operands::readsOnDevice(const at::Tensor& tensor) {
  deviceCopies_ = copiesOf_(tensor.device());
  const auto host = at::empty({tensor.numel()}, tensor.options().device(at::kCPU));
  onDevice_.push_back({tensor.contiguous().view({-1}), host});
  ready_ = deviceCopies_->device().mark();  // the last one comes after all
  return kept_.emplace_back(host);
}

at::Tensor Operands::writes(const at::Tensor& tensor) {
  auto flat = reads(tensor);
  if (!tensor.device().is_cpu()) {
    onDevice_.back().target = tensor;
    return flat;
  }
  if (flat.data_ptr() != tensor.data_ptr()) copies_.emplace_back(tensor, flat.view(tensor.sizes()));
  return flat;
}

at::Tensor Operands::writesTogether(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flats;
  size_t next = onDevice_.size();  // the first of these tensors that is on a device
  for (const auto& tensor : tensors) {
    TORCH_CHECK_VALUE(tensor.scalar_type() == tensors[0].scalar_type(),
                      "sluice: tensors of one call must have one type");
    flats.push_back(reads(tensor));
  }
  const at::AutoDispatchBelowADInplaceOrView noGradients;
  // Values on a device are not here yet; fetch() brings them to their part of `together`.
  auto together = at::cat(flats);
  kept_.push_back(together);
  int64_t begin = 0;
  for (const auto& tensor : tensors) {
    const auto part = together.narrow(0, begin, tensor.numel());
    if (tensor.device().is_cpu()) {
      copies_.emplace_back(tensor, part.view(tensor.sizes()));
    } else {
      auto& copied = onDevice_[next++];
      copied.host = part;  // instead of memory of its own
      copied.target = tensor;
    }
    begin += tensor.numel();
  }
  return together;
}

at::Tensor Operands::scratch(const at::Tensor& like) {
  return kept_.emplace_back(at::empty(like.sizes(), like.options()));
}

void Operands::fetch(const Done& arrived) {
  // Copies of one direction end in order, so the last one stands for all.
  for (size_t i = 0; i < onDevice_.size(); ++i) {
    const bool isLast = i + 1 == onDevice_.size();
    deviceCopies_->copier().toHost(
        TorchDevice::bytesOf(onDevice_[i].flat), ready_, bytesOf(onDevice_[i].host),
        isLast ? arrived : [](const Status&) {});
  }
}

void Operands::copyBack(const CoreCopier::Queued& done) const {
  const at::AutoDispatchBelowADInplaceOrView noGradients;
  for (const auto& [to, from] : copies_) at::Tensor(to).copy_(from);
  std::vector<const OnDevice*> results;
  for (const OnDevice& one : onDevice_) {
    if (one.target.defined() && one.target.numel() > 0) results.push_back(&one);
  }
  if (results.empty()) return done(std::shared_ptr<const DeviceMark>());
  for (const OnDevice* one : results) {
    const bool isLast = one == results.back();
    deviceCopies_->copier().toDevice(
        bytesOf(one->host), TorchDevice::bytesOf(one->flat), ready_,
        [one, copies = deviceCopies_, done = isLast ? done : nullptr](auto queued) {
          // The result lies in one piece on the device. A target of another shape gets it by a
          // copy on the same stream, and the mark moves behind that copy, so that a reader
          // waits for both.
          if (queued.isOk() && !one->flat.is_alias_of(one->target)) {
            const c10::StreamGuard stream(copies->device().resultStream());
            at::Tensor(one->target).copy_(one->flat.view(one->target.sizes()), true);
            queued = std::shared_ptr<const DeviceMark>(
                std::make_shared<detail::TorchMark>(copies->device().resultStream()));
          }
          if (done) done(std::move(queued));
        });
  }
}

void checkReduction(Reduction reduction, at::ScalarType type) {
  using enum c10::ScalarType;
  const bool isFloat = type == Float || type == Double || type == Half || type == BFloat16;
  const bool isWhole = type == Byte || type == Char || type == Int || type == Long || type == Bool;
  TORCH_CHECK_VALUE(
      isFloat || isWhole, "sluice: ", type,
      " cannot be reduced; use float, double, half, bfloat16, int8, uint8, int32, int64 or bool");
  const bool isBitwise = reduction == c10d::ReduceOp::BAND || reduction == c10d::ReduceOp::BOR ||
                         reduction == c10d::ReduceOp::BXOR;
  TORCH_CHECK_VALUE(isWhole || !isBitwise, "sluice: ", nameOf(reduction),
                    " takes whole numbers, not ", type);
  TORCH_CHECK_VALUE(isFloat || reduction != c10d::ReduceOp::AVG,
                    "sluice: AVG takes floating point, not ", type, "; use SUM and divide");
  TORCH_CHECK_VALUE(reduction <= c10d::ReduceOp::BXOR, "sluice: there is no reduction ",
                    nameOf(reduction), "; use SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR or BXOR");
}

void reduceInRankOrder(Reduction reduction, const at::Tensor& out,
                       const std::vector<at::Tensor>& parts) {
  const at::AutoDispatchBelowADInplaceOrView noGradients;
  // The parts are summed in rank order and chunk by chunk, so that all ranks get the same bits
  // and a chunk stays in the cache. The sum is made beside the output, which may be one of the
  // parts.
  for (int64_t begin = 0; begin < out.numel(); begin += kChunk) {
    const int64_t count = std::min(kChunk, out.numel() - begin);
    auto sum = parts[0].narrow(0, begin, count).clone();
    for (size_t r = 1; r < parts.size(); ++r)
      reduceInto(reduction, sum, parts[r].narrow(0, begin, count));
    if (reduction == c10d::ReduceOp::AVG) sum.div_(static_cast<int64_t>(parts.size()));
    out.narrow(0, begin, count).copy_(sum);
  }
}

void divide(const at::Tensor& out, size_t n) {
  const at::AutoDispatchBelowADInplaceOrView noGradients;
  for (int64_t begin = 0; begin < out.numel(); begin += kChunk) {
    out.narrow(0, begin, std::min(kChunk, out.numel() - begin)).div_(static_cast<int64_t>(n));
  }
}

CoreLeg moveLeg(uint32_t self, const Lists& send, const Lists& receive) {
  CoreLeg leg;
  for (uint32_t r = 0; r < send.size(); ++r) {
    if (r == self) continue;
    for (const auto& tensor : send[r]) leg.sends.push_back({Rank{r}, bytesOf(tensor)});
  }
  for (uint32_t r = 0; r < receive.size(); ++r) {
    if (r == self) continue;
    for (const auto& tensor : receive[r]) leg.receives.push_back({Rank{r}, bytesOf(tensor)});
  }
  // A rank's part for itself takes no way over the network, but it moves only when the others'
  // parts are here: it may be read and written by the same call.
  if (send.size() > self && receive.size() > self) {
    leg.then = [from = send[self], to = receive[self]] {
      for (size_t i = 0; i < to.size(); ++i) {
        const auto bytes = bytesOf(from[i]);
        if (!bytes.empty()) std::memmove(bytesOf(to[i]).data(), bytes.data(), bytes.size());
      }
    };
  }
  return leg;
}

CoreLeg reduceLeg(uint32_t self, const Lists& send, const std::vector<at::Tensor>& out,
                  Reduction reduction, Operands& operands) {
  Lists received(out.empty() ? 0 : send.size());
  for (uint32_t r = 0; r < received.size(); ++r) {
    for (size_t i = 0; i < out.size(); ++i)
      received[r].push_back(r == self ? send[self][i] : operands.scratch(out[i]));
  }
  auto leg = moveLeg(self, send, received);
  leg.then = [received, out, reduction] {
    for (size_t i = 0; i < out.size(); ++i) {
      std::vector<at::Tensor> parts;
      for (const auto& from : received) parts.push_back(from[i]);
      reduceInRankOrder(reduction, out[i], parts);
    }
  };
  return leg;
}

}  // namespace sluice::pytorch
