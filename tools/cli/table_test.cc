#include <tools/cli/table.h>

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

TEST(Table, AlignsColumnsForPeopleAndKeysThemForPrograms) {
  Table table({"host", "rate"});
  table.addRow({"0", "1gbit"});
  table.addRow({"10", "100mbit"});
  EXPECT_EQ(table.toText(), "host  rate\n0     1gbit\n10    100mbit\n");
  EXPECT_EQ(table.toJson(), R"([
  {
    "host": "0",
    "rate": "1gbit"
  },
  {
    "host": "10",
    "rate": "100mbit"
  }
]
)");
}

}  // namespace
}  // namespace sluice::cli
