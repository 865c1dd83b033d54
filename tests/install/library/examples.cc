// The examples of the C++ reference (docs/site/cpp-api.md), one for each public class. They are
// compiled and run against an installed sluice, as a job of one process.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <sluice/sluice.h>

namespace {

// [Status]
// Reads a learning rate; an error says what is wrong with it, in one line.
sluice::Status checkRate(double rate) {
  if (rate > 0) return {};
  return {sluice::Code::kInvalidArgument, "the rate must be above 0"};
}
// [Status end]

// [Result]
// Returns a value, or the error of the call below.
sluice::Result<double> scaledRate(double rate, uint32_t workers) {
  if (sluice::Status status = checkRate(rate); !status.isOk())
    return status.withContext("scaling the rate");
  return rate * workers;
}
// [Result end]

// [Config]
sluice::Result<sluice::Config> quietConfig() {
  sluice::Result<sluice::Config> config = sluice::Config::fromEnvironment();
  if (!config.isOk()) return config;
  if (sluice::Status set = config->set("log", "warn"); !set.isOk()) return set;
  for (const std::string& warning : config->warnings())
    std::fprintf(stderr, "%s\n", warning.c_str());
  return config;
}
// [Config end]

// [JoinOptions]
std::atomic<bool> interrupted{false};

sluice::JoinOptions interruptible() {
  return {.interruption = [] {
    return interrupted ? sluice::Status(sluice::Code::kCancelled, "interrupted") : sluice::Status();
  }};
}
// [JoinOptions end]

// [Job]
sluice::Result<std::unique_ptr<sluice::Job>> joinAndGreet(const sluice::Config& config) {
  auto job = sluice::Job::join(config, interruptible());
  if (!job.isOk()) return job;
  std::printf("rank %u of %u\n", index((*job)->rank()), (*job)->worldSize());
  auto names = (*job)->gather("greeting", "rank " + std::to_string(index((*job)->rank())));
  if (!names.isOk()) return names.status();
  return job;
}
// [Job end]

// [Model]
// Two tensors, in the order of the forward pass.
sluice::Model twoLayers() {
  return {{{"body.weight", 1000, sluice::DType::kF32}, {"head.weight", 100, sluice::DType::kF32}}};
}
// [Model end]

// [Tensor]
std::string largest(const sluice::Model& model) {
  const sluice::Tensor* found = &model[sluice::TensorId{0}];
  for (const sluice::Tensor& tensor : model.tensors)
    if (tensor.bytes() > found->bytes()) found = &tensor;
  return found->toString();  // "'body.weight' 1000 f32"
}
// [Tensor end]

// [TensorMemory]
struct Layer {
  explicit Layer(size_t elements) : gradient(elements), weights(elements, 1.0F) {}
  sluice::TensorMemory memory() {
    return {.gradient = std::as_bytes(std::span(gradient)),
            .result = std::as_writable_bytes(std::span(weights))};
  }
  std::vector<float> gradient;
  std::vector<float> weights;
};
// [TensorMemory end]

// [StageObserver]
// Counts slices and waits. Both calls may come from several threads.
class Counter final : public sluice::StageObserver {
 public:
  void onStage(const sluice::StageEvent& event) override {
    if (event.stage == sluice::Stage::kPush) ++pushes;
  }
  void onWait(const sluice::WaitEvent& event) override {
    waited += std::chrono::duration_cast<std::chrono::nanoseconds>(event.to - event.from).count();
  }
  std::atomic<uint64_t> pushes{0};
  std::atomic<int64_t> waited{0};
};
// [StageObserver end]

// [StageEvent]
std::string describe(const sluice::StageEvent& event) {
  return "slice " + std::to_string(index(event.slice)) + " of step " +
         std::to_string(index(event.step)) + ": " + std::string(name(event.stage));
}
// [StageEvent end]

// [WaitEvent]
double seconds(const sluice::WaitEvent& event) {
  return std::chrono::duration<double>(event.to - event.from).count();
}
// [WaitEvent end]

// [SessionOptions]
sluice::SessionOptions optionsFor(std::vector<Layer>& layers, sluice::StageObserver& observer) {
  sluice::SessionOptions options{.model = twoLayers(), .update = "sgd:lr=0.1"};
  for (Layer& layer : layers) options.memory.push_back(layer.memory());
  options.observer = &observer;
  options.settings = {{"slice-elements", "500"}};
  return options;
}
// [SessionOptions end]

// [Session]
sluice::Status train(sluice::Job& job, std::vector<Layer>& layers, int steps) {
  Counter counter;
  auto session = sluice::Session::open(job, optionsFor(layers, counter));
  if (!session.isOk()) return session.status();
  const auto tensors = static_cast<uint32_t>(layers.size());
  for (int step = 0; step < steps; ++step) {
    for (uint32_t t = 0; t < tensors; ++t) {
      // The forward pass of layer t waits for layer t only.
      if (auto here = (*session)->wait(sluice::TensorId{t}); !here.isOk()) return here;
    }
    for (uint32_t t = tensors; t-- > 0;) {
      for (float& value : layers[t].gradient) value = 1.0F;  // backward
      if (auto sent = (*session)->gradientReady(sluice::TensorId{t}); !sent.isOk()) return sent;
    }
  }
  return (*session)->leave();
}
// [Session end]

// [DeviceMark]
// Work that was done when the call returned.
class DoneMark final : public sluice::DeviceMark {
 public:
  sluice::Result<bool> isDone() const override { return true; }
};
// [DeviceMark end]

// [DeviceBytes]
class HeapBytes final : public sluice::DeviceBytes {
 public:
  explicit HeapBytes(size_t bytes) : memory(bytes) {}
  size_t size() const override { return memory.size(); }
  std::vector<std::byte> memory;
};
// [DeviceBytes end]

// [PinnedBytes]
class HeapPinned final : public sluice::PinnedBytes {
 public:
  explicit HeapPinned(size_t bytes) : memory_(bytes) {}
  std::span<std::byte> bytes() override { return memory_; }

 private:
  std::vector<std::byte> memory_;
};
// [PinnedBytes end]

// [Device]
// An accelerator whose memory is the heap: every copy is done at once.
class HeapDevice final : public sluice::Device {
 public:
  std::string name() const override { return "heap:0"; }
  sluice::Result<std::unique_ptr<sluice::PinnedBytes>> allocatePinned(size_t bytes) override {
    return std::unique_ptr<sluice::PinnedBytes>(std::make_unique<HeapPinned>(bytes));
  }
  sluice::Result<std::shared_ptr<sluice::DeviceMark>> copyToHost(
      const sluice::DeviceBytes& from, size_t offset, sluice::PinnedBytes& to, size_t count,
      const sluice::DeviceMark* /*after*/) override {
    std::memcpy(to.bytes().data(), static_cast<const HeapBytes&>(from).memory.data() + offset,
                count);
    return std::shared_ptr<sluice::DeviceMark>(std::make_shared<DoneMark>());
  }
  sluice::Result<std::shared_ptr<sluice::DeviceMark>> copyToDevice(
      sluice::PinnedBytes& from, sluice::DeviceBytes& to, size_t offset, size_t count,
      const sluice::DeviceMark* /*after*/) override {
    std::memcpy(static_cast<HeapBytes&>(to).memory.data() + offset, from.bytes().data(), count);
    return std::shared_ptr<sluice::DeviceMark>(std::make_shared<DoneMark>());
  }
  sluice::Status makeStreamWait(const sluice::DeviceMark& /*mark*/) override { return {}; }
};
// [Device end]

// [DeviceMemory]
// One step of one tensor on the device.
sluice::Status stepOnDevice(sluice::Session& session, sluice::TensorId tensor, size_t bytes) {
  auto gradient = std::make_shared<HeapBytes>(bytes);
  auto result = std::make_shared<HeapBytes>(bytes);
  sluice::DeviceMemory memory{.gradient = gradient, .result = result};
  if (auto sent = session.gradientReady(tensor, memory); !sent.isOk()) return sent;
  return session.wait(tensor);
}
// [DeviceMemory end]

int fail(const sluice::Status& status) {
  std::fprintf(stderr, "%s\n", status.toString().c_str());
  return 1;
}

}  // namespace

int main() {
  const auto rate = scaledRate(0.1, 4);
  if (scaledRate(-1, 4).status().toString().find("scaling the rate") == std::string::npos) return 1;
  const auto config = quietConfig();
  if (!rate.isOk() || !config.isOk()) return 1;
  const auto job = joinAndGreet(*config);
  if (!job.isOk()) return fail(job.status());
  std::vector<Layer> layers{Layer(1000), Layer(100)};
  if (const auto trained = train(**job, layers, 3); !trained.isOk()) return fail(trained);
  if (largest(twoLayers()) != "'body.weight' 1000 f32") return 1;
  if (describe({}).empty() || seconds({}) != 0) return 1;

  HeapDevice device;
  auto session = sluice::Session::open(
      **job, {.model = {{{"weight", 100, sluice::DType::kF32}}}, .name = "b", .device = &device});
  if (!session.isOk()) return fail(session.status());
  if (const auto made = stepOnDevice(**session, sluice::TensorId{0}, 400); !made.isOk())
    return fail(made);
  const auto left = (*session)->leave();
  return left.isOk() ? 0 : fail(left);
}
