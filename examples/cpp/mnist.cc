// A small convolutional network on MNIST, with LibTorch. Each rank is one process:
//   torchrun --no-python --nproc-per-node 2 build/mnist --data DATA
// --data is the folder with mnist/ in it. --steps, --batch, --rate and --seed change the training;
// every SLUICE_* variable changes how ranks are kept in step.
#include <zlib.h>

#include <cstdio>
#include <map>
#include <string>

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
    throw std::runtime_error("cannot read " + path + "; --data names the folder with mnist/ in it");
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

// `part` is train or t10k, as in the files' names.
Images read(const std::string& folder, const std::string& part) {
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

void run(std::map<std::string, std::string> options) {
  const auto job = valueOrThrow(sluice::Job::join());
  const auto rank = static_cast<int64_t>(index(job->rank()));
  const auto world = static_cast<int64_t>(job->worldSize());
  const int64_t batch = std::stoll(options["batch"]);

  torch::set_num_threads(1);
  torch::manual_seed(std::stoull(options["seed"]));
  GatedSequential net = makeNet();
  torch::optim::AdamW optimizer(net->parameters(),
                                torch::optim::AdamWOptions(std::stod(options["rate"])));
  Distributed distributed(*job, *net, optimizer);

  const Images train = read(options["data"], "train");
  torch::Tensor order;  // every rank sees its own part of every epoch
  int64_t next = 0;
  for (int64_t step = 0; step < std::stoll(options["steps"]); ++step) {
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
    distributed.step();
    if (rank == 0 && step % 50 == 0)
      std::printf("step %ld  loss %.3f\n", static_cast<long>(step), loss.item<float>());
  }

  const Images test = read(options["data"], "t10k");
  net->eval();
  const torch::NoGradGuard noGrad;
  int64_t right = 0;
  for (int64_t begin = 0; begin < test.labels.size(0); begin += 500) {
    const auto found = net->forward(test.pixels.slice(0, begin, begin + 500)).argmax(1);
    right += found.eq(test.labels.slice(0, begin, begin + 500)).sum().item<int64_t>();
  }
  distributed.leave();
  double sum = 0;  // tells whether all ranks have the same parameters
  for (const auto& parameter : net->parameters())
    sum += parameter.to(torch::kFloat64).sum().item<double>();
  std::printf("rank %ld of %ld: accuracy %.2f %% on the test images, parameters sum up to %.17g\n",
              static_cast<long>(rank), static_cast<long>(world),
              100.0 * static_cast<double>(right) / static_cast<double>(test.labels.size(0)), sum);
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options{
      {"data", "data"}, {"steps", "400"}, {"batch", "64"}, {"rate", "0.001"}, {"seed", "1"}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name.rfind("--", 0) != 0 || !options.contains(name.substr(2))) {
      std::fprintf(stderr,
                   "mnist: no option %s; there are --data, --steps, --batch, --rate and --seed\n",
                   argv[i]);
      return 2;
    }
    options[name.substr(2)] = argv[i + 1];
  }
  try {
    run(std::move(options));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mnist: %s\n", error.what());
    return 1;
  }
  return 0;
}
