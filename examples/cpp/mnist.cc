// A small convolutional network on MNIST, with LibTorch. Each rank is one process:
//   build/mnist                                                       one rank, made-up images
//   torchrun --no-python --nproc-per-node 2 build/mnist               two ranks
//   torchrun --no-python --nproc-per-node 2 build/mnist --data DATA   DATA has mnist/ in it
//   build/mnist --how plain                                           without sluice
// --steps, --batch, --rate and --seed change the training; every SLUICE_* variable changes how ranks
// are kept in step. LibTorch has no DDP, so there is no --how ddp.
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
#include <sluice/torch.h>

namespace nn = torch::nn;
using sluice::Distributed;
using sluice::GatedSequential;
using sluice::valueOrThrow;

namespace {

struct Images {
  torch::Tensor pixels;
  torch::Tensor labels;
};

torch::Tensor readBytes(const std::string& path, size_t header, size_t each) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr)
    throw std::runtime_error("cannot read " + path +
                             "; --data names the folder with mnist/ in it, or leave --data out");
  std::string bytes;
  char part[65536];
  for (int got = 0; (got = gzread(file, part, sizeof(part))) > 0;) bytes.append(part, got);
  gzclose(file);
  if (bytes.size() <= header || (bytes.size() - header) % each != 0)
    throw std::runtime_error(path + " is cut short");
  return torch::from_blob(bytes.data() + header, {static_cast<int64_t>(bytes.size() - header)},
                          torch::kUInt8)
      .clone();
}

// Makes up ten patterns of 7 by 7 squares, and images that show one of them in noise.
Images synthetic(int64_t count, uint64_t seed) {
  const auto squares = torch::randn({10, 1, 7, 7}, at::detail::createCPUGenerator(1));
  const auto patterns = squares.repeat_interleave(4, 2).repeat_interleave(4, 3);
  const auto generator = at::detail::createCPUGenerator(seed);
  const auto labels = torch::randint(10, {count}, generator, torch::kInt64);
  const auto noise = torch::randn({count, 1, 28, 28}, generator);
  return {patterns.index_select(0, labels).mul(0.5).add(noise), labels};
}

// `part` is train or t10k, as in the files' names.
Images read(const std::string& folder, const std::string& part) {
  if (folder == "synthetic") return part == "train" ? synthetic(8000, 2) : synthetic(2000, 3);
  const auto pixels = readBytes(folder + "/mnist/" + part + "-images-idx3-ubyte.gz", 16, 28 * 28);
  const auto labels = readBytes(folder + "/mnist/" + part + "-labels-idx1-ubyte.gz", 8, 1);
  return {pixels.view({-1, 1, 28, 28}).to(torch::kFloat32).div(255).sub(0.1307).div(0.3081),
          labels.to(torch::kInt64)};
}

GatedSequential makeNet() {
  return GatedSequential(nn::Conv2d(1, 16, 3), nn::ReLU(), nn::MaxPool2d(2), nn::Conv2d(16, 32, 3),
                         nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(32 * 5 * 5, 128),
                         nn::ReLU(), nn::Linear(128, 10));
}

// Shows the progress of rank 0: a bar on a terminal, else a line now and then.
class Progress final {
 public:
  Progress(int64_t steps, int64_t samples) : steps_(steps), samples_(samples) {}

  void show(int64_t done, const torch::Tensor& loss) const {
    const bool isTerminal = ::isatty(STDERR_FILENO) == 1;
    if (!isTerminal && done != steps_ && done % std::max<int64_t>(1, steps_ / 10) != 0) return;
    const auto bar = std::string(static_cast<size_t>(30 * done / steps_), '#');
    if (isTerminal) std::fprintf(stderr, "[%-30s] ", bar.c_str());
    std::fprintf(stderr, "%ld/%ld  loss %.3f  %.0f samples/s%s", static_cast<long>(done),
                 static_cast<long>(steps_), loss.item<float>(), perSecond(done),
                 isTerminal && done != steps_ ? "  \r" : "\n");
  }

  // Returns the samples per second of all ranks.
  double perSecond(int64_t done) const {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begun_;
    return static_cast<double>(done * samples_) / spent.count();
  }

 private:
  int64_t steps_;
  int64_t samples_;  // of all ranks in a step
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

double accuracyOf(GatedSequential& net, const Images& test) {
  net->eval();
  const torch::NoGradGuard noGrad;
  int64_t right = 0;
  for (int64_t begin = 0; begin < test.labels.size(0); begin += 500) {
    const auto found = net->forward(test.pixels.slice(0, begin, begin + 500)).argmax(1);
    right += found.eq(test.labels.slice(0, begin, begin + 500)).sum().item<int64_t>();
  }
  return static_cast<double>(right) / static_cast<double>(test.labels.size(0));
}

using Options = std::map<std::string, std::string>;

double number(const Options& options, const std::string& name) {
  const std::string& text = options.at(name);
  size_t used = 0;
  try {
    const double value = std::stod(text, &used);
    if (used == text.size() && value > 0) return value;
  } catch (const std::exception&) {
  }
  throw std::invalid_argument("--" + name + " is a number above 0, not " + text);
}

void run(Options options) {
  const bool isPlain = options["how"] == "plain";
  const auto job = isPlain ? nullptr : valueOrThrow(sluice::Job::join());
  const int64_t rank = isPlain ? 0 : static_cast<int64_t>(index(job->rank()));
  const int64_t world = isPlain ? 1 : static_cast<int64_t>(job->worldSize());
  const auto batch = static_cast<int64_t>(number(options, "batch"));
  const auto steps = static_cast<int64_t>(number(options, "steps"));

  torch::set_num_threads(1);
  torch::manual_seed(static_cast<uint64_t>(number(options, "seed")));
  GatedSequential net = makeNet();
  torch::optim::AdamW optimizer(net->parameters(),
                                torch::optim::AdamWOptions(number(options, "rate")));
  std::optional<Distributed> distributed;
  if (!isPlain) distributed.emplace(*job, *net, optimizer);

  const Images train = read(options["data"], "train");
  const Progress progress(steps, batch * world);
  torch::Tensor order;  // every rank sees its own part of every epoch
  int64_t next = 0;
  for (int64_t step = 0; step < steps; ++step) {
    if (!order.defined() || next + batch > order.size(0)) {
      order = torch::randperm(train.labels.size(0)).slice(0, rank, train.labels.size(0), world);
      next = 0;
    }
    const auto chosen = order.slice(0, next, next + batch);
    next += batch;
    optimizer.zero_grad();
    const auto loss = nn::functional::cross_entropy(
        net->forward(train.pixels.index_select(0, chosen)), train.labels.index_select(0, chosen));
    loss.backward();
    if (isPlain)
      optimizer.step();
    else
      distributed->step();
    if (rank == 0) progress.show(step + 1, loss);
  }
  const double rate = progress.perSecond(steps);

  const double accuracy = accuracyOf(net, read(options["data"], "t10k"));
  if (!isPlain) distributed->leave();
  double sum = 0;  // tells whether all ranks have the same parameters
  for (const auto& parameter : net->parameters())
    sum += parameter.to(torch::kFloat64).sum().item<double>();
  std::printf(
      "rank %ld of %ld: accuracy %.2f %% on the test images, %.0f samples/s, "
      "parameters sum up to %.17g\n",
      static_cast<long>(rank), static_cast<long>(world), 100.0 * accuracy, rate, sum);
}

// Reads the flags over the defaults. Throws if there is an unknown one, or one without a value.
void readFlags(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string name = flag.rfind("--", 0) == 0 ? flag.substr(2) : "";
    if (!options.contains(name))
      throw std::invalid_argument("no option " + flag + "; there are --how, --data, --steps, " +
                                  "--batch, --rate and --seed");
    if (i + 1 == argc) throw std::invalid_argument(flag + " needs a value");
    options[name] = argv[i + 1];
  }
  if (options["how"] != "sluice" && options["how"] != "plain")
    throw std::invalid_argument("--how is sluice or plain, not " + options["how"]);
}

}  // namespace

int main(int argc, char** argv) {
  Options options{{"how", "sluice"}, {"data", "synthetic"}, {"steps", "400"},
                  {"batch", "64"},   {"rate", "0.001"},     {"seed", "1"}};
  try {
    readFlags(argc, argv, options);
    run(std::move(options));
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "mnist: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mnist: %s\n", error.what());
    return 1;
  }
  return 0;
}
