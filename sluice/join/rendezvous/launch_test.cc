#include <sluice/join/rendezvous/launch.h>

#include <gtest/gtest.h>

namespace sluice::rendezvous {
namespace {

const base::Config::Values kMaster{{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};

base::Config::Values with(base::Config::Values values, const base::Config::Values& more) {
  for (const auto& [name, text] : more) values[name] = text;
  return values;
}

TEST(Launch, IsReadFromEachLauncher) {
  const std::vector<base::Config::Values> launchers{
      {{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}},
      {{"OMPI_COMM_WORLD_RANK", "3"},
       {"OMPI_COMM_WORLD_SIZE", "8"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}},
      {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "1"}},
  };
  for (const auto& launcher : launchers) {
    const Launch launch = readLaunch(with(kMaster, launcher)).value();
    EXPECT_EQ(launch.rank, Rank{3});
    EXPECT_EQ(launch.worldSize, 8U);
    EXPECT_EQ(launch.localRank, 1U);
    EXPECT_EQ(launch.masterHost, "node0");
    EXPECT_EQ(launch.masterPort, 29500);
  }
  // srun starts torchrun: the nearer launcher is the one that counts.
  EXPECT_EQ(readLaunch(with(with(kMaster, launchers[0]), {{"SLURM_PROCID", "7"}})).value().rank,
            Rank{3});
}

TEST(Launch, TheMasterIsDerivedWhereTheLauncherSaysEnough) {
  const base::Config::Values mpirun{{"OMPI_COMM_WORLD_RANK", "1"},
                                    {"OMPI_COMM_WORLD_SIZE", "2"},
                                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                    {"PMIX_NAMESPACE", "prterun-node-4711@1"}};
  const Launch local = readLaunch(mpirun).value();
  EXPECT_EQ(local.masterHost, "127.0.0.1");
  EXPECT_GE(local.masterPort, 20000);
  EXPECT_LT(local.masterPort, 30000);
  EXPECT_EQ(readLaunch(with(mpirun, kMaster)).value().masterHost, "node0");
  EXPECT_EQ(readLaunch(with(mpirun, kMaster)).value().masterPort, 29500);
  EXPECT_NE(
      readLaunch(with(mpirun, {{"PMIX_NAMESPACE", "prterun-node-4712@1"}})).value().masterPort,
      local.masterPort);
  const auto spread = readLaunch(with(mpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}));
  EXPECT_TRUE(spread.status().message().starts_with("MASTER_ADDR is not set; "))
      << spread.status().message();

  struct Case {
    std::string hosts;
    std::string first;
  };
  const std::vector<Case> cases{{"gpu[03-07,12]", "gpu03"}, {"gpu[3,5]", "gpu3"},
                                {"login", "login"},         {"a,b", "a"},
                                {"n[1-2]-ib,m3", "n1-ib"},  {"x,gpu[1-2]", "x"}};
  for (const auto& c : cases) {
    const Launch launch = readLaunch({{"SLURM_PROCID", "0"},
                                      {"SLURM_NTASKS", "4"},
                                      {"SLURM_JOB_ID", "17"},
                                      {"SLURM_STEP_ID", "0"},
                                      {"SLURM_STEP_NUM_NODES", "2"},
                                      {"SLURM_STEP_NODELIST", c.hosts}})
                              .value();
    EXPECT_EQ(launch.masterHost, c.first) << c.hosts;
    EXPECT_GE(launch.masterPort, 20000);
  }
}

TEST(Launch, UnderTorchrunTakesThePortAfterItsStore) {
  const auto values =
      with(kMaster, {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"TORCHELASTIC_RUN_ID", "x"}});
  EXPECT_EQ(readLaunch(values).value().masterPort, 29501);
}

TEST(Launch, MistakesNameTheVariable) {
  const base::Config::Values good = with(kMaster, {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  struct Case {
    std::string variable;
    std::string text;  // empty: unset
    std::string starts;
  };
  const std::vector<Case> cases{
      {"RANK", "", "RANK is not set; "},
      {"WORLD_SIZE", "", "WORLD_SIZE is not set; "},
      {"MASTER_ADDR", "", "MASTER_ADDR is not set; "},
      {"MASTER_PORT", "", "MASTER_PORT is not set; "},
      {"RANK", "x", "RANK=x must be a whole number"},
      {"RANK", "-1", "RANK=-1 must be a whole number"},
      {"RANK", "2", "RANK=2 must be below WORLD_SIZE=2"},
      {"WORLD_SIZE", "0", "WORLD_SIZE=0 must be"},
      {"MASTER_PORT", "70000", "MASTER_PORT=70000 must be"},
      {"MASTER_PORT", "-1", "MASTER_PORT=-1 must be a whole number from 0"},
  };
  for (const auto& c : cases) {
    base::Config::Values values = good;
    values.erase(c.variable);
    if (!c.text.empty()) values[c.variable] = c.text;
    const auto launch = readLaunch(values);
    ASSERT_FALSE(launch.isOk()) << c.starts;
    EXPECT_TRUE(launch.status().message().starts_with(c.starts)) << launch.status().message();
  }
}

TEST(Launch, TakesTheNamesThatAllRanksOfOneLaunchShare) {
  const base::Config::Values rank = with(kMaster, {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  using Ids = std::map<std::string, std::string>;
  const base::Config::Values torchrun = with(rank, {{"TORCHELASTIC_RUN_ID", "r"},
                                                    {"TORCHELASTIC_RESTART_COUNT", "1"},
                                                    {"GROUP_WORLD_SIZE", "2"},
                                                    {"SLURM_JOB_ID", "17"}});
  EXPECT_EQ(readLaunch(rank).value().ids, Ids{});
  EXPECT_EQ(readLaunch(torchrun).value().ids, (Ids{{"TORCHELASTIC_RUN_ID", "r"}}));
  EXPECT_EQ(readLaunch(with(torchrun, {{"GROUP_WORLD_SIZE", "1"}})).value().ids,
            (Ids{{"TORCHELASTIC_RUN_ID", "r"}, {"TORCHELASTIC_RESTART_COUNT", "1"}}));
  EXPECT_EQ(readLaunch(with(rank, {{"SLURM_JOB_ID", "17"}, {"SLURM_STEP_ID", "3"}})).value().ids,
            (Ids{{"SLURM_JOB_ID", "17"}}));
  const base::Config::Values srun = with(kMaster, {{"SLURM_PROCID", "0"},
                                                   {"SLURM_NTASKS", "2"},
                                                   {"SLURM_JOB_ID", "17"},
                                                   {"SLURM_STEP_ID", "3"}});
  EXPECT_EQ(readLaunch(srun).value().ids, (Ids{{"SLURM_JOB_ID", "17"}, {"SLURM_STEP_ID", "3"}}));
  EXPECT_EQ(readLaunch(with(srun, {{"SLURM_HET_SIZE", "2"}})).value().ids, Ids{});
  EXPECT_EQ(readLaunch(with(kMaster, {{"OMPI_COMM_WORLD_RANK", "0"},
                                      {"OMPI_COMM_WORLD_SIZE", "2"},
                                      {"PMIX_NAMESPACE", "prterun-7@1"},
                                      {"SLURM_JOB_ID", "17"}}))
                .value()
                .ids,
            (Ids{{"PMIX_NAMESPACE", "prterun-7@1"}}));
}

TEST(Launch, OnlyRank0MayListenOnAnyPort) {
  const auto at = [](const std::string& rank) {
    return readLaunch({{"RANK", rank},
                       {"WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "node0"},
                       {"MASTER_PORT", "0"},
                       {"TORCHELASTIC_RUN_ID", "7"}});
  };
  EXPECT_EQ(at("0").value().masterPort, 0);
  EXPECT_TRUE(
      at("1").status().message().starts_with("MASTER_PORT=0 must be a whole number from 1"));
}

}  // namespace
}  // namespace sluice::rendezvous
