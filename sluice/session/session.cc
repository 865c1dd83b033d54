#include <sluice/session.h>

#include <sluice/session/inside.h>

namespace sluice {
namespace {

// Calls the trainer, unless this is a forked child of the rank's process.
template <typename Call>
auto onTrainer(session::SessionParts& parts, Call&& call) -> decltype(call(parts.trainer())) {
  // A forked child has a copy of all objects but no loop thread: a call would wait for ever.
  if (!parts.isHere()) return parts.checkProcess();
  return call(parts.trainer());
}

// Calls the way of tensors on a device. Refuses if the session has no device.
template <typename Call>
Status onDevicePath(session::SessionParts& parts, Call&& call) {
  if (!parts.isHere()) return parts.checkProcess();
  if (parts.devicePath() == nullptr) {
    return {Code::kInvalidArgument, "the session has no device; name it in SessionOptions::device"};
  }
  return call(*parts.devicePath());
}

}  // namespace

Session::Session(std::unique_ptr<session::SessionParts> inside) : inside_(std::move(inside)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::open(Job& job, SessionOptions options) {
  return session::Inside::open(session::Inside::of(job), std::move(options));
}

Status Session::gradientReady(TensorId tensor) {
  return onTrainer(*inside_, [&](auto& trainer) { return trainer.gradientReady(tensor); });
}

Status Session::gradientReady(TensorId tensor, const TensorMemory& memory) {
  return onTrainer(*inside_, [&](auto& trainer) { return trainer.gradientReady(tensor, memory); });
}

Status Session::gradientAbsent(TensorId tensor, std::span<std::byte> result,
                               std::shared_ptr<const void> owner) {
  return onTrainer(*inside_, [&](auto& trainer) {
    return trainer.gradientAbsent(tensor, result, std::move(owner));
  });
}

Status Session::gradientReady(TensorId tensor, DeviceMemory memory) {
  return onDevicePath(*inside_,
                      [&](auto& path) { return path.gradientReady(tensor, std::move(memory)); });
}

Status Session::gradientAbsent(TensorId tensor, DeviceMemory memory) {
  return onDevicePath(*inside_,
                      [&](auto& path) { return path.gradientAbsent(tensor, std::move(memory)); });
}

Status Session::handOutDelayed(TensorId tensor, DeviceMemory memory) {
  return onDevicePath(*inside_,
                      [&](auto& path) { return path.handOutDelayed(tensor, std::move(memory)); });
}

Status Session::wait(TensorId tensor) {
  SLUICE_RETURN_IF_ERROR(inside_->checkProcess());
  return inside_->wait(tensor);
}

Status Session::waitAll() {
  SLUICE_RETURN_IF_ERROR(inside_->checkProcess());
  return inside_->waitAll();
}

bool Session::isReady(TensorId tensor) const {
  return inside_->isHere() && inside_->isReady(tensor);
}

bool Session::isEmpty(TensorId tensor) const {
  return inside_->isHere() && inside_->trainer().isEmpty(tensor);
}

Status Session::setHyperparameters(std::vector<double> values) {
  return onTrainer(*inside_,
                   [&](auto& trainer) { return trainer.setHyperparameters(std::move(values)); });
}

Status Session::update(std::vector<double> values) {
  return onTrainer(*inside_, [&](auto& trainer) { return trainer.update(std::move(values)); });
}

void Session::drop() {
  if (inside_->isHere()) inside_->trainer().drop();
}

Result<size_t> Session::delayed() {
  return onTrainer(*inside_, [](auto& trainer) { return trainer.delayed(); });
}

Status Session::handOutDelayed(TensorId tensor, std::span<std::byte> result,
                               std::shared_ptr<const void> owner) {
  return onTrainer(*inside_, [&](auto& trainer) {
    return trainer.handOutDelayed(tensor, result, std::move(owner));
  });
}

Status Session::drain() {
  return onTrainer(*inside_, [](auto& trainer) { return trainer.drain(); });
}

Result<std::vector<std::byte>> Session::takeState() {
  return onTrainer(*inside_, [](auto& trainer) { return trainer.takeState(); });
}

Status Session::restore(std::span<const std::byte> state) {
  SLUICE_RETURN_IF_ERROR(inside_->checkProcess());
  return inside_->restore(state);
}

Status Session::broadcast(Rank root, std::span<std::byte> data) {
  return onTrainer(*inside_, [&](auto& trainer) { return trainer.broadcast(root, data); });
}

Result<std::vector<std::string>> Session::gather(const std::string& key, const std::string& value) {
  return inside_->gather(key, value);
}

Status Session::leave() {
  return inside_->leave();
}

Status Session::announceEnd() {
  return inside_->announceEnd();
}

void Session::abandon(const std::string& why) {
  inside_->abandon(why);
}

Rank Session::rank() const {
  return inside_->rank();
}

bool Session::isWorker() const {
  return inside_->isWorker();
}

std::string Session::algorithm() const {
  return inside_->plan().spec().strategy;
}

}  // namespace sluice
