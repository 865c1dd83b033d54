// Whole jobs over tcp on loopback addresses, ranks as threads.
#include <sluice/session/inside.h>

#include <dlfcn.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/base/options.h>
#include <sluice/base/testing/free_port.h>
#include <sluice/base/testing/short_tests.h>
#include <sluice/observe/metrics/testing/scrape.h>

namespace sluice::session {
namespace {

void onRanks(
    uint32_t world, const std::function<void(uint32_t, Result<std::unique_ptr<Job>>)>& task,
    const std::function<void(uint32_t, base::Config&)>& configure = [](auto, auto&) {}) {
  const std::string port = base::freePort();
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      base::Config config;
      configure(r, config);
      task(r, Job::join(Inside::wrap(std::move(config)),
                        {.environment = {{"RANK", std::to_string(r)},
                                         {"WORLD_SIZE", std::to_string(world)},
                                         {"MASTER_ADDR", "127.0.0.1"},
                                         {"MASTER_PORT", port}}}));
    });
  }
  for (auto& thread : threads) thread.join();
}

// A model of one tensor in one rank's memory.
struct OneTensor {
  explicit OneTensor(uint64_t elements) : gradient(elements), parameter(elements, 1) {}
  SessionOptions options(const std::string& update, const std::string& name = "model") {
    return {.model = {{{"w", gradient.size(), DType::kF32}}},
            .memory = {{std::as_bytes(std::span(gradient)),
                        std::as_writable_bytes(std::span(parameter))}},
            .update = update,
            .name = name};
  }
  std::vector<float> gradient;
  std::vector<float> parameter;
};

TEST(Session, AJobOfOneNeedsNoLauncher) {
  auto job = Job::join(Config()).value();
  OneTensor memory(3);
  auto session = Session::open(*job, memory.options("sgd:lr=1")).value();
  memory.gradient = {1, 2, 3};
  EXPECT_TRUE(session->gradientReady(TensorId{0}).isOk());
  EXPECT_TRUE(session->wait(TensorId{0}).isOk());
  EXPECT_EQ(memory.parameter, (std::vector<float>{0, -1, -2}));
  EXPECT_TRUE(session->leave().isOk());
}

TEST(Session, TrainsTwoModelsOfOneJobOverTcp) {
  onRanks(3, [](uint32_t r, Result<std::unique_ptr<Job>> job) {
    ASSERT_TRUE(job.isOk()) << job.status().toString();
    OneTensor large(200'001);
    OneTensor small(5);
    auto first = Session::open(**job, large.options("sgd:lr=1", "large"));
    ASSERT_TRUE(first.isOk()) << first.status().toString();
    auto second = Session::open(**job, small.options("mean-gradient", "small"));
    ASSERT_TRUE(second.isOk()) << second.status().toString();
    for (int step = 0; step < 3; ++step) {
      EXPECT_TRUE((*first)->wait(TensorId{0}).isOk());
      EXPECT_TRUE((*second)->wait(TensorId{0}).isOk());
      std::ranges::fill(large.gradient, static_cast<float>(r));
      std::ranges::fill(small.gradient, static_cast<float>(r * step));
      EXPECT_TRUE((*first)->gradientReady(TensorId{0}).isOk());
      EXPECT_TRUE((*second)->gradientReady(TensorId{0}).isOk());
    }
    EXPECT_TRUE((*first)->leave().isOk());
    EXPECT_TRUE((*second)->leave().isOk());
    EXPECT_EQ(large.parameter, std::vector<float>(200'001, -2));
    EXPECT_EQ(small.parameter, std::vector<float>(5, 2));
  });
}

TEST(Session, TrainsOverUcxOnlyWhereTheNetworkIsTrusted) {
  for (const bool isTrusted : {false, true}) {
    onRanks(
        2,
        [&](uint32_t r, Result<std::unique_ptr<Job>> job) {
          ASSERT_TRUE(job.isOk()) << job.status().toString();
          OneTensor memory(100'001);
          auto session = Session::open(**job, memory.options("sgd:lr=1"));
          ASSERT_EQ(session.isOk(), isTrusted) << session.status().toString();
          if (!isTrusted) return;
          for (int step = 0; step < 3; ++step) {
            EXPECT_TRUE((*session)->wait(TensorId{0}).isOk());
            std::ranges::fill(memory.gradient, static_cast<float>(2 * r));
            EXPECT_TRUE((*session)->gradientReady(TensorId{0}).isOk());
          }
          EXPECT_TRUE((*session)->leave().isOk());
          EXPECT_EQ(memory.parameter, std::vector<float>(100'001, -2));
        },
        [&](uint32_t, base::Config& config) {
          EXPECT_TRUE(config.set(option::kFabric, "ucx").isOk());
          EXPECT_TRUE(config.set(option::kIface, "lo").isOk());
          EXPECT_TRUE(config.set(option::kTrustedNetwork, isTrusted ? "on" : "off").isOk());
        });
  }
}

TEST(Session, TellsPrometheusHowItGoes) {
  onRanks(
      2,
      [](uint32_t r, Result<std::unique_ptr<Job>> job) {
        ASSERT_TRUE(job.isOk()) << job.status().toString();
        const std::string url = Inside::of(**job).metrics()->url();
        OneTensor memory(100'001);
        {
          auto session = Session::open(**job, memory.options("sgd:lr=1"));
          ASSERT_TRUE(session.isOk()) << session.status().toString();
          for (int step = 0; step < 3; ++step) {
            EXPECT_TRUE((*session)->gradientReady(TensorId{0}).isOk());
            EXPECT_TRUE((*session)->wait(TensorId{0}).isOk());
          }
          const std::string text = metrics::scrape(url);
          const std::string labels = fmt::format(R"({{session="model",rank="{}")", r);
          const uint64_t slices = Inside::of(**session).plan().slices().size();
          for (const auto& line :
               {fmt::format("sluice_steps_total{}}} 3\n", labels),
                fmt::format("sluice_slices_total{},stage=\"ready\"}} {}\n", labels, 3 * slices),
                fmt::format("sluice_slices_total{},stage=\"applied\"}} {}\n", labels, 3 * slices),
                fmt::format("sluice_wait_seconds_total{},layer=\"w\"}} ", labels),
                fmt::format("sluice_inversion_seconds_count{}}} ", labels),
                fmt::format("sluice_credit_used_bytes{}}} ", labels),
                fmt::format("sluice_peer_up{},peer=\"{}\"}} 1\n", labels, 1 - r)}) {
            EXPECT_NE(text.find(line), std::string::npos) << line << "is not in\n" << text;
          }
          EXPECT_EQ(text.find(fmt::format("sluice_sent_bytes_total{}}} 0\n", labels)),
                    std::string::npos);
          EXPECT_TRUE((*session)->leave().isOk());
        }
        EXPECT_EQ(metrics::scrape(url).find("session="),
                  std::string::npos);  // it is gone; the job is not
      },
      [](uint32_t, base::Config& config) {
        EXPECT_TRUE(config.set(option::kMetricsPort, "0").isOk());
      });
}

TEST(Session, AMetricsPortThatIsNoneIsRefused) {
  for (const char* port : {"-1", "65536", "http", ""}) {
    base::Config config;
    ASSERT_TRUE(config.set(option::kMetricsPort, port).isOk());
    EXPECT_EQ(Job::join(Inside::wrap(config)).status().code(), Code::kInvalidArgument) << port;
  }
}

TEST(Session, RanksThatTrainDifferentThingsAreToldTheFirstDifference) {
  onRanks(3, [](uint32_t r, Result<std::unique_ptr<Job>> job) {
    ASSERT_TRUE(job.isOk()) << job.status().toString();
    OneTensor memory(r == 2 ? 7 : 6);
    const Status status = Session::open(**job, memory.options("mean-gradient")).status();
    EXPECT_EQ(status.message(),
              "the ranks do not train the same thing: rank 2: tensor 0 'w' has 7 elements here, 6 "
              "on rank 0");
  });
}

TEST(Session, TakesEveryGradientFromWhereItLies) {
  onRanks(2, [](uint32_t r, Result<std::unique_ptr<Job>> job) {
    ASSERT_TRUE(job.isOk()) << job.status().toString();
    auto session =
        Session::open(**job, {.model = {{{"w", 70'001, DType::kF32}, {"b", 3, DType::kF32}}}});
    ASSERT_TRUE(session.isOk()) << session.status().toString();
    std::vector<std::unique_ptr<std::vector<float>>> held;
    for (int step = 0; step < 4; ++step) {
      for (const uint32_t t : {1U, 0U}) {
        auto& gradient = *held.emplace_back(std::make_unique<std::vector<float>>(
            Inside::of(**session).plan().model().tensors[t].elements,
            static_cast<float>(step + 2 * r)));
        const auto bytes = std::as_writable_bytes(std::span(gradient));
        EXPECT_TRUE((*session)->gradientReady(TensorId{t}, {bytes, bytes}).isOk());
      }
      EXPECT_TRUE((*session)->waitAll().isOk());
      for (const auto& gradient : held) {
        EXPECT_EQ(*gradient, std::vector<float>(gradient->size(), static_cast<float>(step + 1)));
      }
      held.clear();
    }
    EXPECT_TRUE((*session)->leave().isOk());
  });
}

// Rank 1 never has a gradient for "some", and no rank has one for "none".
TEST(Session, AMissingGradientIsZeroAndIsLeftAloneIfNobodyHasOne) {
  for (const std::string algorithm : {"sluice", "kvstore"}) {
    onRanks(
        2,
        [](uint32_t r, Result<std::unique_ptr<Job>> job) {
          ASSERT_TRUE(job.isOk()) << job.status().toString();
          auto session = Session::open(
              **job, {.model = {{{"some", 70'001, DType::kF32}, {"none", 90'000, DType::kF32}}}});
          ASSERT_TRUE(session.isOk()) << session.status().toString();
          std::vector<float> some(70'001);
          std::vector<float> none(90'000, 7);
          const auto bytes = std::as_writable_bytes(std::span(some));
          for (int step = 0; step < 3; ++step) {
            std::ranges::fill(some, 5.F);
            EXPECT_TRUE((r == 0 ? (*session)->gradientReady(TensorId{0}, {bytes, bytes})
                                : (*session)->gradientAbsent(TensorId{0}, bytes))
                            .isOk());
            EXPECT_TRUE((*session)
                            ->gradientAbsent(TensorId{1}, std::as_writable_bytes(std::span(none)))
                            .isOk());
            EXPECT_TRUE((*session)->waitAll().isOk());
            EXPECT_FALSE((*session)->isEmpty(TensorId{0}));
            EXPECT_TRUE((*session)->isEmpty(TensorId{1}));
            EXPECT_EQ(some, std::vector<float>(70'001, 2.5F));
            EXPECT_EQ(none, std::vector<float>(90'000, 7));
          }
          EXPECT_TRUE((*session)->leave().isOk());
        },
        [&](uint32_t, base::Config& config) {
          EXPECT_TRUE(config.set(option::kAlgorithm, algorithm).isOk());
        });
  }
}

Status takeAStep(Session& session) {
  SLUICE_RETURN_IF_ERROR(session.gradientReady(TensorId{0}));
  return session.wait(TensorId{0});
}

// Returns the exit code of a forked child: 0 iff every call in it ended with the right error.
int tryInAChild(std::unique_ptr<Session>& session, std::unique_ptr<Job>& job) {
  const std::string expected =
      "this process was forked from rank " + std::to_string(index(job->rank())) +
      " of a sluice job and is not a member of it; make the call in the parent";
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);  // ends a call that waits for the parent's thread
    std::vector<std::byte> word(3);
    session->drop();
    int wrong = 0;
    const std::vector<Status> ends{session->gradientReady(TensorId{0}),
                                   session->wait(TensorId{0}),
                                   session->waitAll(),
                                   session->broadcast(Rank{0}, word),
                                   session->takeState().status(),
                                   session->restore(word),
                                   session->gather("key", "").status(),
                                   session->drain(),
                                   session->announceEnd(),
                                   session->leave(),
                                   job->gather("key", "").status(),
                                   Inside::of(*job).set("key", ""),
                                   Inside::of(*job).get("key").status()};
    for (const Status& end : ends) wrong += end.message() == expected ? 0 : 1;
    session->abandon("nobody is to hear this");
    session.reset();
    job.reset();
    ::_exit(wrong);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Session, AForkedChildIsNoRankAndDoesNotDisturbItsParent) {
  onRanks(2, [](uint32_t, Result<std::unique_ptr<Job>> job) {
    ASSERT_TRUE(job.isOk()) << job.status().toString();
    OneTensor memory(5);
    auto session = Session::open(**job, memory.options("mean-gradient"));
    ASSERT_TRUE(session.isOk()) << session.status().toString();
    EXPECT_TRUE(takeAStep(**session).isOk());
    EXPECT_EQ(tryInAChild(*session, *job), 0);
    EXPECT_TRUE(takeAStep(**session).isOk());
    EXPECT_TRUE((*session)->leave().isOk());
  });
}

TEST(Session, AWaitThatTimesOutSaysWhereTheOtherRankIs) {
  std::barrier<> bothHaveWaited(2);
  onRanks(
      2,
      [&](uint32_t r, Result<std::unique_ptr<Job>> job) {
        ASSERT_TRUE(job.isOk()) << job.status().toString();
        OneTensor memory(5);
        auto session = Session::open(**job, memory.options("mean-gradient"));
        ASSERT_TRUE(session.isOk()) << session.status().toString();
        EXPECT_TRUE(takeAStep(**session).isOk());
        if (r == 0) {
          EXPECT_THAT(takeAStep(**session).message(),
                      testing::AllOf(testing::HasSubstr("did not come within 1s (wait-timeout)"),
                                     testing::HasSubstr(": rank 1 has been in a meeting of all ")));
        } else {
          EXPECT_THAT((*session)->gather("key", "").status().message(),
                      testing::HasSubstr("rank 0 has been waiting for results of step 1 for "));
        }
        bothHaveWaited.arrive_and_wait();
      },
      [](uint32_t, base::Config& config) {
        EXPECT_TRUE(config.set(option::kWaitTimeout, "1s").isOk());
      });
}

TEST(Session, Rank0PublishesThePortOnWhichItListens) {
  std::promise<uint16_t> published;
  auto port = published.get_future();
  std::thread second([&] {
    const auto job =
        Job::join(Config(), {.environment = {{"RANK", "1"},
                                             {"WORLD_SIZE", "2"},
                                             {"MASTER_ADDR", "127.0.0.1"},
                                             {"MASTER_PORT", std::to_string(port.get())}}});
    EXPECT_TRUE(job.isOk()) << job.status().toString();
  });
  const auto job = Job::join(Config(), {.environment = {{"RANK", "0"},
                                                        {"WORLD_SIZE", "2"},
                                                        {"MASTER_ADDR", "127.0.0.1"},
                                                        {"MASTER_PORT", "0"}},
                                        .published = [&](uint16_t number) {
                                          published.set_value(number);
                                          return base::ok();
                                        }});
  EXPECT_TRUE(job.isOk()) << job.status().toString();
  second.join();
}

// Returns the error of a rank that trains on after another has ended.
std::string whatTheOtherHears(const std::function<void(Session&)>& end,
                              const std::function<Status(Session&)>& goOn = takeAStep) {
  std::string heard;
  onRanks(
      2,
      [&](uint32_t r, Result<std::unique_ptr<Job>> job) {
        ASSERT_TRUE(job.isOk()) << job.status().toString();
        OneTensor memory(5);
        auto session = Session::open(**job, memory.options("mean-gradient"));
        ASSERT_TRUE(session.isOk()) << session.status().toString();
        EXPECT_TRUE(takeAStep(**session).isOk());
        if (r == 1) return end(**session);
        heard = goOn(**session).message();
      },
      [](uint32_t, base::Config& config) {
        EXPECT_TRUE(config.set(option::kWaitTimeout, "3s").isOk());
      });
  return heard;
}

TEST(Session, ARankThatTrainsLongerIsToldWhoHasEnded) {
  EXPECT_EQ(whatTheOtherHears([](Session& session) { EXPECT_FALSE(session.leave().isOk()); }),
            "waiting for 'w' of step 1: rank 1 has ended its training after 1 steps");
}

TEST(Session, ARankThatWaitsForABroadcastIsToldWhoHasEnded) {
  const auto hear = [](Session& session) {
    std::vector<std::byte> word(3);
    return session.broadcast(Rank{1}, word);
  };
  const auto stayUntilTheOtherIsGone = [](Session& session) {
    EXPECT_FALSE(session.leave().isOk());
  };
  EXPECT_EQ(whatTheOtherHears(
                [&](Session& session) {
                  EXPECT_TRUE(session.announceEnd().isOk());
                  stayUntilTheOtherIsGone(session);
                },
                hear),
            "rank 1 has ended its training after 1 steps");
  EXPECT_EQ(whatTheOtherHears(
                [&](Session& session) {
                  session.abandon("ended with KeyboardInterrupt");
                  stayUntilTheOtherIsGone(session);
                },
                hear),
            "rank 1 ended with KeyboardInterrupt");
}

// One rank saves, while the other does something else; its checkpoint is enough for both.
TEST(Session, ACheckpointOfAspIsTheServersModel) {
  constexpr size_t kElements = 200'001;
  const auto withAsp = [](uint32_t, base::Config& config) {
    EXPECT_TRUE(config.set(option::kAlgorithm, "asp").isOk());
  };
  std::vector<std::byte> saved;
  onRanks(
      2,
      [&](uint32_t r, Result<std::unique_ptr<Job>> job) {
        ASSERT_TRUE(job.isOk()) << job.status().toString();
        OneTensor memory(kElements);
        auto session = Session::open(**job, memory.options("sgd:lr=1"));
        ASSERT_TRUE(session.isOk()) << session.status().toString();
        for (int step = 0; step < 3; ++step) {
          std::ranges::fill(memory.gradient, 1.F);
          EXPECT_TRUE((*session)->gradientReady(TensorId{0}).isOk());
          EXPECT_TRUE((*session)->wait(TensorId{0}).isOk());
        }
        EXPECT_TRUE((*job)->gather("trained", "").isOk());
        if (r == 1) {
          auto state = (*session)->takeState();
          ASSERT_TRUE(state.isOk()) << state.status().toString();
          saved = *std::move(state);
          EXPECT_EQ(memory.parameter, std::vector<float>(kElements, 1.F - 6));
        }
        EXPECT_TRUE((*session)->leave().isOk());
      },
      withAsp);
  onRanks(
      2,
      [&](uint32_t r, Result<std::unique_ptr<Job>> job) {
        ASSERT_TRUE(job.isOk()) << job.status().toString();
        OneTensor memory(kElements);
        auto session = Session::open(**job, memory.options("sgd:lr=1"));
        ASSERT_TRUE(session.isOk()) << session.status().toString();
        EXPECT_TRUE((*session)->restore(saved).isOk());
        EXPECT_EQ(memory.parameter, std::vector<float>(kElements, -5));
        EXPECT_TRUE((*job)->gather("restored", "").isOk());
        if (r == 0) {
          std::ranges::fill(memory.gradient, 1.F);
          EXPECT_TRUE((*session)->gradientReady(TensorId{0}).isOk());
          EXPECT_TRUE((*session)->wait(TensorId{0}).isOk());
          EXPECT_EQ(memory.parameter, std::vector<float>(kElements, -6));
        }
        EXPECT_TRUE((*session)->leave().isOk());
      },
      withAsp);
}

void withPipe(uint32_t, base::Config& config) {
  EXPECT_TRUE(config.set(option::kAlgorithm, "pipe").isOk());
  EXPECT_TRUE(config.set(option::kWaitTimeout, "3s").isOk());
}

TEST(Session, GoesOnFromACheckpointWithGradientsThatAreNotApplied) {
  std::vector<std::vector<std::byte>> states(2);
  std::vector<float> parameter;
  onRanks(
      2,
      [&](uint32_t r, Result<std::unique_ptr<Job>> job) {
        ASSERT_TRUE(job.isOk()) << job.status().toString();
        OneTensor memory(200'001);
        auto session = Session::open(**job, memory.options("sgd:lr=1"));
        ASSERT_TRUE(session.isOk()) << session.status().toString();
        for (const float step : {1.F, 2.F, 4.F}) {
          EXPECT_TRUE((*session)->wait(TensorId{0}).isOk());
          std::ranges::fill(memory.gradient, step);
          EXPECT_TRUE((*session)->gradientReady(TensorId{0}).isOk());
        }
        states[r] = (*session)->takeState().value();
        if (r == 0) parameter = memory.parameter;
        EXPECT_TRUE((*session)->leave().isOk());  // applies nothing
        EXPECT_EQ(memory.parameter[0], 1.F - 1 - 2);
      },
      withPipe);
  onRanks(
      2,
      [&](uint32_t r, Result<std::unique_ptr<Job>> job) {
        ASSERT_TRUE(job.isOk()) << job.status().toString();
        OneTensor memory(200'001);
        memory.parameter = parameter;
        auto session = Session::open(**job, memory.options("sgd:lr=1"));
        ASSERT_TRUE(session.isOk()) << session.status().toString();
        EXPECT_TRUE((*session)->restore(states[r]).isOk());
        std::ranges::fill(memory.gradient, 8.F);
        EXPECT_TRUE((*session)->gradientReady(TensorId{0}).isOk());
        EXPECT_TRUE((*session)->wait(TensorId{0}).isOk());
        EXPECT_EQ(memory.parameter[0], 1.F - 1 - 2 - 4);
        EXPECT_TRUE((*session)->drain().isOk());
        EXPECT_EQ(memory.parameter, std::vector<float>(200'001, 1.F - 1 - 2 - 4 - 8));
        EXPECT_TRUE((*session)->leave().isOk());
      },
      withPipe);
}

// The gates of the longer rank are open: it has not waited for the gradient that the other rank
// never had.
TEST(Session, ARankThatTrainsLongerWithDelayedGradientsIsToldAtItsEnd) {
  for (const bool drains : {true, false}) {
    std::string heard;
    onRanks(
        2,
        [&](uint32_t r, Result<std::unique_ptr<Job>> job) {
          ASSERT_TRUE(job.isOk()) << job.status().toString();
          OneTensor memory(5);
          auto session = Session::open(**job, memory.options("sgd:lr=1"));
          ASSERT_TRUE(session.isOk()) << session.status().toString();
          Status status;
          for (uint32_t step = 0; step < 2 - r && status.isOk(); ++step) {
            EXPECT_TRUE((*session)->gradientReady(TensorId{0}).isOk());
            status = (*session)->wait(TensorId{0});  // or it is told here already
          }
          if (status.isOk()) status = drains && r == 0 ? (*session)->drain() : (*session)->leave();
          EXPECT_FALSE(status.isOk());
          if (r == 0) heard = status.message();
        },
        withPipe);
    EXPECT_NE(heard.find("rank 1 has ended its training after 1 steps"), std::string::npos)
        << heard;
  }
}

// Every rank makes a different number of steps, and at the end reads the result of all.
TEST(Session, AsynchronousWorkersDoNotWaitForEachOther) {
  onRanks(
      3,
      [](uint32_t r, Result<std::unique_ptr<Job>> job) {
        ASSERT_TRUE(job.isOk()) << job.status().toString();
        OneTensor memory(200'001);
        auto session = Session::open(**job, memory.options("sgd:lr=1"));
        ASSERT_TRUE(session.isOk()) << session.status().toString();
        const auto step = [&](float gradient) {
          std::ranges::fill(memory.gradient, gradient);
          ASSERT_TRUE(takeAStep(**session).isOk());
        };
        for (uint32_t i = 0; i < 3 + 2 * r; ++i) step(1);
        ASSERT_TRUE((*job)->gather("all have made their steps", "").isOk());
        step(0);
        EXPECT_EQ(memory.parameter, std::vector<float>(200'001, 1 - (3 + 5 + 7)));
        EXPECT_TRUE((*session)->leave().isOk());
      },
      [](uint32_t, base::Config& config) {
        EXPECT_TRUE(config.set(option::kAlgorithm, "asp").isOk());
      });
}

// One rank makes one step and ends; the other goes on. Returns the error of the other, if any.
Status goOnAfterAnotherHasEnded(const std::string& algorithm) {
  Status heard;
  onRanks(
      2,
      [&](uint32_t r, Result<std::unique_ptr<Job>> job) {
        ASSERT_TRUE(job.isOk()) << job.status().toString();
        OneTensor memory(5);
        auto session = Session::open(**job, memory.options("sgd:lr=1"));
        ASSERT_TRUE(session.isOk()) << session.status().toString();
        Status status;
        for (int i = 0; i < (r == 1 ? 1 : 2000) && status.isOk(); ++i)
          status = takeAStep(**session);
        if (r == 0) heard = status;
        if (status.isOk()) (void)(*session)->leave();
      },
      [&](uint32_t, base::Config& config) {
        EXPECT_TRUE(config.set(option::kAlgorithm, algorithm).isOk());
        EXPECT_TRUE(config.set(option::kWaitTimeout, "3s").isOk());
      });
  return heard;
}

TEST(Session, AnAsynchronousWorkerGoesOnAfterAnotherHasEnded) {
  for (const char* algorithm : {"asp", "easgd", "gosgd:1", "adpsgd"}) {
    const Status heard = goOnAfterAnotherHasEnded(algorithm);
    EXPECT_TRUE(heard.isOk()) << algorithm << ": " << heard.toString();
  }
}

// Every rank adds one to its own element in each step, and one rank takes five times longer: the
// values that a rank reads count the others' steps.
TEST(Session, NobodyReadsMoreThanTheBoundBehindAStraggler) {
  constexpr uint32_t kWorld = 3;
  constexpr uint64_t kBound = 2;
  constexpr uint64_t kSteps = 60;
  std::atomic<uint64_t> behind = 0;
  onRanks(
      kWorld,
      [&](uint32_t r, Result<std::unique_ptr<Job>> job) {
        ASSERT_TRUE(job.isOk()) << job.status().toString();
        OneTensor memory(kWorld);
        memory.parameter.assign(kWorld, 0);
        auto session = Session::open(**job, memory.options("sgd:lr=1"));
        ASSERT_TRUE(session.isOk()) << session.status().toString();
        memory.gradient[r] = -1;
        for (uint64_t clock = 0; clock < kSteps; ++clock) {
          for (uint32_t other = 0; other < kWorld; ++other) {
            const auto reads = static_cast<uint64_t>(memory.parameter[other]);
            ASSERT_GE(reads + kBound, clock) << "rank " << r << " of rank " << other;
            if (reads < clock) ++behind;
          }
          ASSERT_EQ(static_cast<uint64_t>(memory.parameter[r]), clock);
          std::this_thread::sleep_for(std::chrono::milliseconds(r == 1 ? 5 : 1));  // computes
          ASSERT_TRUE(takeAStep(**session).isOk());
        }
        EXPECT_TRUE((*session)->leave().isOk());
      },
      [](uint32_t, base::Config& config) {
        EXPECT_TRUE(config.set(option::kAlgorithm, "ssp:2").isOk());
        EXPECT_TRUE(config.set(option::kSliceElements, "1").isOk());
      });
  EXPECT_GT(behind, kSteps);  // otherwise no rank has been ahead
}

TEST(Session, AStaleWorkerGoesOnAsFarAsItMay) {
  EXPECT_EQ(goOnAfterAnotherHasEnded("ssp:1").message(),
            "waiting for 'w' of step 2: rank 1 has ended its training after 1 steps");
}

TEST(Session, AnAbandonedSessionEndsTheOthersWithTheReason) {
  EXPECT_EQ(whatTheOtherHears([](Session& session) {
              session.abandon("ended with ValueError: no");
              EXPECT_FALSE(session.leave().isOk());  // stays until the other is gone
            }),
            "waiting for 'w' of step 1: rank 1 ended with ValueError: no");
}

TEST(Session, NobodyWaitsAtTheEndForARankThatHasFailed) {
  std::string heard;
  std::promise<void> otherHasHeard;
  onRanks(
      2,
      [&](uint32_t r, Result<std::unique_ptr<Job>> job) {
        ASSERT_TRUE(job.isOk()) << job.status().toString();
        OneTensor memory(5);
        auto session = Session::open(**job, memory.options("mean-gradient"));
        ASSERT_TRUE(session.isOk()) << session.status().toString();
        EXPECT_TRUE(takeAStep(**session).isOk());
        if (r == 1) {
          heard = (*session)->leave().message();
          otherHasHeard.set_value();
        } else {
          std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the other is in leave()
          (*session)->abandon("ended with ValueError: no");
          otherHasHeard.get_future().wait_for(std::chrono::seconds(5));  // it is not gone itself
        }
      },
      [](uint32_t, base::Config& config) {
        EXPECT_TRUE(config.set(option::kWaitTimeout, "3s").isOk());
      });
  EXPECT_EQ(heard, "rank 0 ended with ValueError: no");
}

// Returns the error of ranks that gather while another rank ends.
std::vector<std::string> whatAGatheringHears(const std::function<void(JobParts&)>& end) {
  std::vector<std::string> heard(3);
  onRanks(3, [&](uint32_t r, Result<std::unique_ptr<Job>> job) {
    ASSERT_TRUE(job.isOk()) << job.status().toString();
    EXPECT_TRUE((*job)->gather("all", "").isOk());
    if (r == 1) {
      end(Inside::of(**job));
      std::this_thread::sleep_for(std::chrono::seconds(1));  // it is not gone
    } else {
      heard[r] = (*job)->gather("without rank 1", "").status().message();
    }
  });
  return heard;
}

TEST(Session, AGatheringEndsWithTheReasonOfTheRankThatFailed) {
  const std::string why = "rank 1 ended with ValueError: no";
  EXPECT_THAT(whatAGatheringHears([](JobParts& job) { job.abandon("ended with ValueError: no"); }),
              testing::ElementsAre(why, "", why));
}

TEST(Session, AGatheringDoesNotWaitForARankThatHasEnded) {
  const std::string why = "rank 1 has ended its training";
  EXPECT_THAT(whatAGatheringHears([](JobParts& job) { EXPECT_TRUE(job.announceEnd().isOk()); }),
              testing::ElementsAre(why, "", why));
}

// The addresses that the resolver below knows. A name of them is found after `misses` lookups.
struct LateName {
  std::atomic<int> misses{0};
  std::atomic<bool> isSilent{false};
};
LateName& lateName() {
  static LateName name;
  return name;
}
constexpr std::string_view kLateName = "late.sluice.test";

TEST(Job, AMasterThatResolvesLateIsWaitedFor) {
  lateName().misses = 5;
  const std::string port = base::freePort();
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      const auto job = Job::join(Config(), {.environment = {{"RANK", std::to_string(r)},
                                                            {"WORLD_SIZE", "2"},
                                                            {"MASTER_ADDR", std::string(kLateName)},
                                                            {"MASTER_PORT", port}}});
      EXPECT_TRUE(job.isOk()) << job.status().toString();
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_LE(lateName().misses, 0);
}

// A name server that does not answer at all must not keep Ctrl-C waiting.
TEST(Job, AnInterruptionEndsTheSearchForTheMaster) {
  lateName().isSilent = true;
  const Status ctrlC(Code::kCancelled, "interrupted");
  int asked = 0;
  const auto begun = std::chrono::steady_clock::now();
  const auto job = Job::join(
      Config(), {.environment = {{"RANK", "1"},
                                 {"WORLD_SIZE", "2"},
                                 {"MASTER_ADDR", std::string(kLateName)},
                                 {"MASTER_PORT", "9"}},
                 .interruption = [&]() -> Status { return ++asked == 3 ? ctrlC : base::ok(); }});
  EXPECT_EQ(job.status(), ctrlC);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
  lateName().isSilent = false;
}

TEST(Job, ALoopThatCannotBeMadeIsNamed) {
  if (base::testsAreShort()) GTEST_SKIP() << "sanitizers need files of their own";
  rlimit former{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &former), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = former.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto job = Job::join(Config());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &former), 0);
  EXPECT_THAT(job.status().message(), testing::HasSubstr("ulimit -n"));
}

}  // namespace
}  // namespace sluice::session

// Replaces the C library's function: every lookup of this program comes through here.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  using sluice::session::kLateName;
  using sluice::session::lateName;
  static const auto real =
      reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (node == nullptr || node != kLateName) return real(node, service, hints, found);
  while (lateName().isSilent) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (--lateName().misses >= 0) return EAI_NONAME;
  return real("127.0.0.1", service, hints, found);
}
