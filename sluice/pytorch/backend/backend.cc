#include <sluice/pytorch/backend/backend.h>

#include <utility>

namespace sluice::pytorch {
namespace {

using c10d::OpType;
using table::ExchangeKind;

const at::Tensor& one(const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "sluice: give one tensor per rank, not ", tensors.size());
  return tensors[0];
}

const std::vector<at::Tensor>& one(const Lists& lists, size_t world) {
  TORCH_CHECK_VALUE(lists.size() == 1 && lists[0].size() == world, "sluice: give a list of ", world,
                    " tensors, one for each rank");
  return lists[0];
}

// Checks that two tensors, which are reduced together, have one type and size.
void checkAlike(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK_VALUE(a.scalar_type() == b.scalar_type() && a.numel() == b.numel(),
                    "sluice: tensors of one call have ", a.numel(), " elements of ",
                    a.scalar_type(), " and ", b.numel(), " of ", b.scalar_type(),
                    "; they must be the same");
}

// Splits `whole` into one part for each rank.
std::vector<at::Tensor> inParts(const at::Tensor& whole, const at::Tensor& part, size_t world) {
  TORCH_CHECK_VALUE(whole.scalar_type() == part.scalar_type() &&
                        whole.numel() == part.numel() * static_cast<int64_t>(world),
                    "sluice: a tensor of ", whole.numel(), " ", whole.scalar_type(), " must hold ",
                    world, " times ", part.numel(), " ", part.scalar_type());
  std::vector<at::Tensor> parts;
  for (size_t r = 0; r < world; ++r)
    parts.push_back(whole.narrow(0, static_cast<int64_t>(r) * part.numel(), part.numel()));
  return parts;
}

// Splits a tensor by sizes along its first dimension; into equal parts if `sizes` is empty.
std::vector<at::Tensor> inRows(const at::Tensor& tensor, const at::Tensor& flat,
                               const std::vector<int64_t>& sizes, size_t world) {
  // A tensor is cut along its first dimension, and its memory is flat: a row is a run of
  // elements, so each part is one piece of memory without a copy.
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const auto ranks = static_cast<int64_t>(world);
  TORCH_CHECK_VALUE(!sizes.empty() || rows % ranks == 0, "sluice: ", rows,
                    " rows are not a multiple of ", ranks, " ranks; give split sizes");
  TORCH_CHECK_VALUE(sizes.empty() || sizes.size() == world, "sluice: ", sizes.size(),
                    " split sizes were given for ", ranks, " ranks");
  const int64_t rowElements = rows == 0 ? 0 : flat.numel() / rows;
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (size_t r = 0; r < world; ++r) {
    const int64_t count = sizes.empty() ? rows / ranks : sizes[r];
    TORCH_CHECK_VALUE(count >= 0 && begin + count <= rows,
                      "sluice: split sizes add up to more than ", rows, " rows");
    parts.push_back(flat.narrow(0, begin * rowElements, count * rowElements));
    begin += count;
  }
  TORCH_CHECK_VALUE(begin == rows, "sluice: split sizes add up to ", begin,
                    " rows, but the tensor has ", rows);
  return parts;
}

// Returns the type as FabricCollective names it; empty if FabricCollective does not sum it.
std::optional<DType> floatType(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return DType::kF32;
    case at::kDouble: return DType::kF64;
    case at::kHalf: return DType::kF16;
    case at::kBFloat16: return DType::kBF16;
    default: return std::nullopt;
  }
}

// Turns lists by tensor and rank into lists by rank and tensor.
Lists transposed(const Lists& lists, size_t world) {
  Lists byRank(world);
  for (const auto& list : lists) {
    for (size_t r = 0; r < world; ++r) byRank[r].push_back(list[r]);
  }
  return byRank;
}

std::vector<at::Tensor> flattened(const Lists& lists) {
  std::vector<at::Tensor> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace

std::shared_ptr<DeviceCopies> BackendLink::copiesOf(const c10::Device& device) {
  return copies_.with([&](auto& copies) {
    if (!copies) {
      // A forked child lacks the threads, and must not touch the device.
      copies = base::HomePtr<DeviceCopies>(
          std::make_unique<DeviceCopies>(device, group_->stagingBytes()));
    }
    TORCH_CHECK_VALUE(copies->place() == device, "sluice: a tensor is on ", device,
                      ", but this process group has had tensors on ", copies->place(),
                      "; a group takes one accelerator per process");
    return copies;
  });
}

SluiceBackend::SluiceBackend(std::shared_ptr<BackendLink> connection,
                             std::chrono::milliseconds timeout,
                             std::function<void(BackendLink&)> close,
                             std::function<void()> interrupt)
    : Backend(static_cast<int>(connection->group().rank()),
              static_cast<int>(connection->group().worldSize())),
      connection_(std::move(connection)),
      close_(std::move(close)),
      interrupt_(std::move(interrupt)),
      options_(c10::make_intrusive<Options>("sluice", timeout)) {}

SluiceBackend::PendingPtr SluiceBackend::makeWork(const Call& call, std::vector<at::Tensor> inputs,
                                                  std::vector<at::Tensor> outputs) {
  return c10::make_intrusive<PendingWork>(rank_, call.type, call.title, std::move(inputs),
                                          std::move(outputs), sequence_++, interrupt_);
}

void SluiceBackend::submit(const Call& call, const PendingPtr& work, const OperandsPtr& operands,
                           Submit what) {
  CoreTerms terms;
  terms.atMost = call.timeout == c10d::kUnsetTimeout ? options_->timeout : call.timeout;
  terms.memory = operands;
  // A call ends in up to three places: its results are copied to their tensors, for a device
  // that copy is queued, and only then is the work complete. Callbacks on it run on the
  // messenger, since they are Python and may wait for another collective, which the loop has to
  // carry out.
  const auto complete = [work, messenger = &connection_->messenger()](const Status& status) {
    work->complete(status, *messenger);
  };
  terms.done = [work, operands, complete](const Status& status) {
    if (!status.isOk() || !operands) return complete(status);
    operands->copyBack([work, operands, complete](auto landed) {
      if (!landed.isOk()) return complete(landed.status());
      if (*landed != nullptr) work->setLanding(operands->copies(), *landed);
      complete(base::ok());
    });
  };
  const auto send = [connection = connection_, what = std::move(what), terms] {
    return what(connection->group(), terms);
  };
  const auto sendLater = [send, complete](const Status& arrived) {
    const Status status = arrived.isOk() ? send() : arrived;
    if (!status.isOk()) complete(status);
  };
  const auto copies = connection_->copies();
  // The values of a tensor on a device may still be computed. The call is submitted once they
  // are on the host, and calls without a device queue up behind it, because the order of calls
  // is the same on all ranks.
  if (operands && operands->copies()) return operands->fetch(sendLater);
  // All ranks make their calls in one order, so this one waits for those before it.
  if (copies && copies->copier().hasToHost())
    return copies->copier().toHost(nullptr, nullptr, {}, sendLater);
  const Status status = send();
  TORCH_CHECK_WITH(DistBackendError, status.isOk(), "sluice: ", status.message());
}

SluiceBackend::OperandsPtr SluiceBackend::newOperands() {
  return std::make_shared<Operands>([connection = connection_](const c10::Device& device) {
    return connection->copiesOf(device);
  });
}

SluiceBackend::WorkPtr SluiceBackend::exchange(const Call& call, ExchangeKind kind,
                                               std::vector<CoreLeg> legs,
                                               const OperandsPtr& operands,
                                               std::vector<at::Tensor> inputs,
                                               std::vector<at::Tensor> outputs) {
  const auto work = makeWork(call, std::move(inputs), std::move(outputs));
  submit(call, work, operands, [kind, legs = std::move(legs)](CoreGroup& group, CoreTerms terms) {
    return group.exchange(kind, legs, std::move(terms));
  });
  return work;
}

Rank SluiceBackend::checkRank(int64_t rank) const {
  TORCH_CHECK_VALUE(rank >= 0 && rank < size_, "sluice: there is no rank ", rank, " in a group of ",
                    size_);
  return Rank{static_cast<uint32_t>(rank)};
}

SluiceBackend::WorkPtr SluiceBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                const c10d::BroadcastOptions& options) {
  const Call call{OpType::BROADCAST, "sluice:broadcast", options.timeout};
  const Rank root = checkRank(options.rootRank);
  const auto operands = newOperands();
  const auto bytes = bytesOf(operands->writes(one(tensors)));
  const auto work = makeWork(call, tensors, tensors);
  submit(call, work, operands, [=](CoreGroup& group, CoreTerms terms) {
    return group.broadcast(bytes, root, std::move(terms));
  });
  return work;
}

SluiceBackend::WorkPtr SluiceBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                const c10d::AllreduceOptions& options) {
  const auto operands = newOperands();
  return allReduce({OpType::ALLREDUCE, "sluice:all_reduce", options.timeout},
                   operands->writes(one(tensors)), options.reduceOp, operands, tensors);
}

SluiceBackend::WorkPtr SluiceBackend::allreduce_sparse(std::vector<at::Tensor>& tensors,
                                                       const c10d::AllreduceOptions& options) {
  return allreduce(tensors, options);  // refuses sparse tensors
}

SluiceBackend::WorkPtr SluiceBackend::allreduce_coalesced(
    std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "sluice: no tensor was given");
  const auto operands = newOperands();
  return allReduce({OpType::ALLREDUCE_COALESCED, "sluice:all_reduce", options.timeout},
                   operands->writesTogether(tensors), options.reduceOp, operands, tensors);
}

SluiceBackend::WorkPtr SluiceBackend::allReduce(const Call& call, const at::Tensor& flat,
                                                Reduction reduction, const OperandsPtr& operands,
                                                const std::vector<at::Tensor>& tensors) {
  checkReduction(reduction, flat.scalar_type());
  const auto dtype = floatType(flat.scalar_type());
  const bool isSum = reduction == c10d::ReduceOp::SUM || reduction == c10d::ReduceOp::AVG;
  // Sums of floats go the way of training: the method with the least cost, sums in a fixed
  // order, one division for a mean. Other types and reductions take two legs of parcels, which
  // need no arithmetic of our own.
  if (dtype && isSum) {
    const auto work = makeWork(call, tensors, tensors);
    const bool isMean = reduction == c10d::ReduceOp::AVG;
    submit(call, work, operands, [=, n = world()](CoreGroup& group, CoreTerms terms) {
      if (isMean) {
        terms.done = [flat, n, done = std::move(terms.done)](const Status& status) {
          if (status.isOk()) divide(flat, n);
          done(status);
        };
      }
      return group.allReduce(bytesOf(flat), *dtype, std::move(terms));
    });
    return work;
  }
  // Every rank reduces one part, and gives it to all ranks.
  Lists parts(world());
  for (size_t r = 0; r < world(); ++r) {
    const auto begin = [&](size_t part) {
      return flat.numel() * static_cast<int64_t>(part) / size_;
    };
    parts[r] = {flat.narrow(0, begin(r), begin(r + 1) - begin(r))};
  }
  std::vector<CoreLeg> legs;
  legs.push_back(reduceLeg(self(), parts, parts[self()], reduction, *operands));
  legs.push_back(moveLeg(self(), Lists(world(), parts[self()]), parts));
  return exchange(call, ExchangeKind::kAllReduce, std::move(legs), operands, tensors, tensors);
}

SluiceBackend::WorkPtr SluiceBackend::reduce(std::vector<at::Tensor>& tensors,
                                             const c10d::ReduceOptions& options) {
  const Rank root = checkRank(options.rootRank);
  const auto operands = newOperands();
  const auto flat = operands->writes(one(tensors));
  checkReduction(options.reduceOp, flat.scalar_type());
  Lists send(world());
  send[index(root)] = {flat};
  std::vector<at::Tensor> out;
  if (index(root) == self()) out = {flat};
  auto leg = reduceLeg(self(), send, out, options.reduceOp, *operands);
  return exchange({OpType::REDUCE, "sluice:reduce", options.timeout}, ExchangeKind::kReduce,
                  {std::move(leg)}, operands, tensors, tensors);
}

SluiceBackend::WorkPtr SluiceBackend::allgather(Lists& outputs, std::vector<at::Tensor>& inputs,
                                                const c10d::AllgatherOptions& options) {
  const auto operands = newOperands();
  const auto input = operands->reads(one(inputs));
  Lists receive;
  for (const auto& output : one(outputs, world())) receive.push_back({operands->writes(output)});
  checkAlike(input, receive[self()][0]);
  return exchange({OpType::ALLGATHER, "sluice:all_gather", options.timeout},
                  ExchangeKind::kAllGather, {moveLeg(self(), Lists(world(), {input}), receive)},
                  operands, inputs, outputs[0]);
}

SluiceBackend::WorkPtr SluiceBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::AllgatherOptions& options) {
  std::vector<at::Tensor> outputs{output};
  std::vector<at::Tensor> inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

SluiceBackend::WorkPtr SluiceBackend::allgather_coalesced(Lists& outputs,
                                                          std::vector<at::Tensor>& inputs,
                                                          const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == world(), "sluice: give a list of tensors for each of ",
                    world(), " ranks");
  const auto operands = newOperands();
  std::vector<at::Tensor> send;
  for (const auto& input : inputs) send.push_back(operands->reads(input));
  Lists receive(world());
  for (size_t r = 0; r < world(); ++r) {
    TORCH_CHECK_VALUE(outputs[r].size() == inputs.size(), "sluice: ", outputs[r].size(),
                      " outputs were given for ", inputs.size(), " inputs");
    for (const auto& output : outputs[r]) receive[r].push_back(operands->writes(output));
  }
  for (size_t i = 0; i < send.size(); ++i) checkAlike(send[i], receive[self()][i]);
  return exchange({OpType::ALLGATHER_COALESCED, "sluice:all_gather", options.timeout},
                  ExchangeKind::kAllGather, {moveLeg(self(), Lists(world(), send), receive)},
                  operands, inputs, flattened(outputs));
}

SluiceBackend::WorkPtr SluiceBackend::allgather_into_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "sluice: ", outputs.size(),
                    " outputs were given for ", inputs.size(), " inputs");
  const auto operands = newOperands();
  std::vector<at::Tensor> send;
  Lists receive;
  for (size_t i = 0; i < inputs.size(); ++i) {
    send.push_back(operands->reads(inputs[i]));
    receive.push_back(inParts(operands->writes(outputs[i]), send[i], world()));
  }
  return exchange({OpType::_ALLGATHER_BASE, "sluice:all_gather", options.timeout},
                  ExchangeKind::kAllGather,
                  {moveLeg(self(), Lists(world(), send), transposed(receive, world()))}, operands,
                  inputs, outputs);
}

SluiceBackend::WorkPtr SluiceBackend::gather(Lists& outputs, std::vector<at::Tensor>& inputs,
                                             const c10d::GatherOptions& options) {
  const Rank root = checkRank(options.rootRank);
  const auto operands = newOperands();
  const auto input = operands->reads(one(inputs));
  Lists send(world());
  send[index(root)] = {input};
  Lists receive;
  if (index(root) == self()) {
    for (const auto& output : one(outputs, world())) receive.push_back({operands->writes(output)});
    checkAlike(input, receive[self()][0]);
  }
  return exchange({OpType::GATHER, "sluice:gather", options.timeout}, ExchangeKind::kGather,
                  {moveLeg(self(), send, receive)}, operands, inputs, flattened(outputs));
}

SluiceBackend::WorkPtr SluiceBackend::scatter(std::vector<at::Tensor>& outputs, Lists& inputs,
                                              const c10d::ScatterOptions& options) {
  const Rank root = checkRank(options.rootRank);
  const auto operands = newOperands();
  Lists receive(world());
  receive[index(root)] = {operands->writes(one(outputs))};
  Lists send;
  if (index(root) == self()) {
    for (const auto& input : one(inputs, world())) send.push_back({operands->reads(input)});
    checkAlike(send[self()][0], receive[self()][0]);
  }
  return exchange({OpType::SCATTER, "sluice:scatter", options.timeout}, ExchangeKind::kScatter,
                  {moveLeg(self(), send, receive)}, operands, flattened(inputs), outputs);
}

SluiceBackend::WorkPtr SluiceBackend::reduce_scatter(std::vector<at::Tensor>& outputs,
                                                     Lists& inputs,
                                                     const c10d::ReduceScatterOptions& options) {
  const auto operands = newOperands();
  const auto output = operands->writes(one(outputs));
  checkReduction(options.reduceOp, output.scalar_type());
  Lists send;
  for (const auto& input : one(inputs, world())) send.push_back({operands->reads(input)});
  checkAlike(send[self()][0], output);
  auto leg = reduceLeg(self(), send, {output}, options.reduceOp, *operands);
  return exchange({OpType::REDUCE_SCATTER, "sluice:reduce_scatter", options.timeout},
                  ExchangeKind::kReduceScatter, {std::move(leg)}, operands, inputs[0], outputs);
}

SluiceBackend::WorkPtr SluiceBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  std::vector<at::Tensor> outputs{output};
  std::vector<at::Tensor> inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

SluiceBackend::WorkPtr SluiceBackend::reduce_scatter_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "sluice: ", outputs.size(),
                    " outputs were given for ", inputs.size(), " inputs");
  const auto operands = newOperands();
  std::vector<at::Tensor> out;
  Lists send;
  for (size_t i = 0; i < inputs.size(); ++i) {
    out.push_back(operands->writes(outputs[i]));
    checkReduction(options.reduceOp, out[i].scalar_type());
    send.push_back(inParts(operands->reads(inputs[i]), out[i], world()));
  }
  auto leg = reduceLeg(self(), transposed(send, world()), out, options.reduceOp, *operands);
  return exchange({OpType::_REDUCE_SCATTER_BASE, "sluice:reduce_scatter", options.timeout},
                  ExchangeKind::kReduceScatter, {std::move(leg)}, operands, inputs, outputs);
}

SluiceBackend::WorkPtr SluiceBackend::alltoall(std::vector<at::Tensor>& outputs,
                                               std::vector<at::Tensor>& inputs,
                                               const c10d::AllToAllOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == world() && inputs.size() == world(), "sluice: give ", world(),
                    " tensors in and out, one for each rank");
  const auto operands = newOperands();
  Lists send;
  Lists receive;
  for (size_t r = 0; r < world(); ++r) {
    send.push_back({operands->reads(inputs[r])});
    receive.push_back({operands->writes(outputs[r])});
  }
  checkAlike(send[self()][0], receive[self()][0]);
  return exchange({OpType::ALLTOALL, "sluice:all_to_all", options.timeout}, ExchangeKind::kAllToAll,
                  {moveLeg(self(), send, receive)}, operands, inputs, outputs);
}

SluiceBackend::WorkPtr SluiceBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                    std::vector<int64_t>& outputSizes,
                                                    std::vector<int64_t>& inputSizes,
                                                    const c10d::AllToAllOptions& options) {
  const auto operands = newOperands();
  Lists send;
  Lists receive;
  for (const auto& part : inRows(input, operands->reads(input), inputSizes, world()))
    send.push_back({part});
  for (const auto& part : inRows(output, operands->writes(output), outputSizes, world()))
    receive.push_back({part});
  checkAlike(send[self()][0], receive[self()][0]);
  return exchange({OpType::ALLTOALL_BASE, "sluice:all_to_all", options.timeout},
                  ExchangeKind::kAllToAll, {moveLeg(self(), send, receive)}, operands, {input},
                  {output});
}

SluiceBackend::WorkPtr SluiceBackend::barrier(const c10d::BarrierOptions& options) {
  const Call call{OpType::BARRIER, "sluice:barrier", options.timeout};
  const auto work = makeWork(call, {}, {});
  submit(call, work, nullptr,
         [](CoreGroup& group, CoreTerms terms) { return group.barrier(std::move(terms)); });
  return work;
}

SluiceBackend::WorkPtr SluiceBackend::send(std::vector<at::Tensor>& tensors, int to, int tag) {
  const Call call{OpType::SEND, "sluice:send"};
  const Rank receiver = checkRank(to);
  TORCH_CHECK_VALUE(tag >= 0, "sluice: tag ", tag, " must not be negative");
  const auto operands = newOperands();
  const auto bytes = bytesOf(operands->reads(one(tensors)));
  const auto work = makeWork(call, tensors, {});
  submit(call, work, operands, [=](CoreGroup& group, CoreTerms terms) {
    return group.send(receiver, static_cast<uint32_t>(tag), bytes, std::move(terms));
  });
  return work;
}

SluiceBackend::WorkPtr SluiceBackend::recv(std::vector<at::Tensor>& tensors, int from, int tag) {
  return receive({OpType::RECV, "sluice:recv"}, tensors, checkRank(from), tag);
}

SluiceBackend::WorkPtr SluiceBackend::recvAnysource(std::vector<at::Tensor>& tensors, int tag) {
  return receive({OpType::RECVANYSOURCE, "sluice:recvAnySource"}, tensors, std::nullopt, tag);
}

SluiceBackend::WorkPtr SluiceBackend::receive(const Call& call, std::vector<at::Tensor>& tensors,
                                              std::optional<Rank> from, int tag) {
  TORCH_CHECK_VALUE(tag >= 0, "sluice: tag ", tag, " must not be negative");
  const auto operands = newOperands();
  const auto bytes = bytesOf(operands->writes(one(tensors)));
  const auto work = makeWork(call, tensors, tensors);
  submit(call, work, operands, [=](CoreGroup& group, CoreTerms terms) {
    return group.receive(
        from, static_cast<uint32_t>(tag), bytes, [work](Rank source) { work->setSource(source); },
        std::move(terms));
  });
  return work;
}

}  // namespace sluice::pytorch
