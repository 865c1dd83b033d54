#include <tools/cli/table.h>

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/check.h>

namespace sluice::cli {

void Table::addRow(std::vector<std::string> cells) {
  SLUICE_CHECK(cells.size() == columns_.size(), cells.size(), columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::toText() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = columns_[c].size();
    for (const auto& row : rows_) width = std::max(width, row[c].size());
    widths.push_back(width);
  }
  std::string text;
  const auto addLine = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t c = 0; c < cells.size(); ++c) line += fmt::format("{:<{}}  ", cells[c], widths[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  addLine(columns_);
  for (const auto& row : rows_) addLine(row);
  return text;
}

std::string Table::toJson() const {
  auto rows = nlohmann::ordered_json::array();
  for (const auto& row : rows_) {
    nlohmann::ordered_json object;
    for (size_t c = 0; c < columns_.size(); ++c) object[columns_[c]] = row[c];
    rows.push_back(std::move(object));
  }
  return rows.dump(2) + "\n";
}

void Table::print(bool asJson) const {
  fmt::print("{}", asJson ? toJson() : toText());
}

}  // namespace sluice::cli
