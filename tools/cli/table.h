// A table for people, or the same rows as JSON for programs: one object per row, keyed by the
// column names.
#pragma once

#include <string>
#include <vector>

namespace sluice::cli {

class Table final {
 public:
  explicit Table(std::vector<std::string> columns) : columns_(std::move(columns)) {}

  void addRow(std::vector<std::string> cells);  // REQUIRES: one cell per column

  std::string toText() const;  // columns aligned; the last one is not padded
  std::string toJson() const;
  void print(bool asJson) const;  // to stdout

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace sluice::cli
