#include <sluice/base/json.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/text.h>

namespace sluice::base {
namespace {

using nlohmann::json;

// Builds the document while the parser reads, and ends the parser at the first limit. A parser that
// is asked afterwards has taken the memory already.
class JsonBuilder final : public json::json_sax_t {
 public:
  JsonBuilder(const JsonLimits& limits, const JsonParts* parts) : limits_(limits), parts_(parts) {}

  Result<json> finish() {
    if (!fault_.isOk()) return fault_;
    if (parts_ != nullptr && !hasList_)
      return fault(fmt::format("it has no list '{}'", parts_->list));
    return std::move(root_);
  }

  bool null() override { return addScalar(nullptr); }
  bool boolean(bool value) override { return addScalar(value); }
  bool number_integer(number_integer_t value) override { return addScalar(value); }
  bool number_unsigned(number_unsigned_t value) override { return addScalar(value); }
  bool number_float(number_float_t value, const string_t&) override { return addScalar(value); }
  bool string(string_t& value) override { return isPassedOver_ || addScalar(std::move(value)); }
  bool binary(binary_t&) override { return fail(std::string(kNotJson)); }
  bool start_object(size_t) override { return open(json::value_t::object); }
  bool start_array(size_t) override { return open(json::value_t::array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (parts_ != nullptr && depth_ == 1) {
      isList_ = name == parts_->list;
      isPassedOver_ = !isList_ && std::ranges::find(parts_->kept, name) == parts_->kept.end();
      values_ = 0;
      if (isList_) return true;
    }
    if (!isPassedOver_) slot_ = &(*open_.back())[std::move(name)];
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // The library's own text may hold all of the text that it has read.
    constexpr int kNumberTooLarge = 406;
    if (error.id == kNumberTooLarge)
      return fail(fmt::format("it has a number that is not possible, at byte {}", position));
    return fail(fmt::format("{} at byte {}", kNotJson, position));
  }

 private:
  static Status fault(std::string text) { return {Code::kInvalidArgument, std::move(text)}; }
  bool fail(std::string text) {
    fault_ = fault(std::move(text));
    return false;
  }

  bool isInList() const { return isList_ && open_.size() == 1; }

  // Returns where the value lies now; null if it is one too many.
  json* put(json&& value) {
    if (++values_ > limits_.mostValues) {
      fail(fmt::format("it has more than {} values", limits_.mostValues));
      return nullptr;
    }
    // Pointers to open lists stay good: nothing is added to a list while an element of it is open.
    json* place = slot_;
    if (open_.empty()) {
      place = &root_;
    } else if (isInList()) {
      place = &element_;
    } else if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    *place = std::move(value);
    return place;
  }

  template <typename T>
  bool addScalar(T&& value) {
    if (isPassedOver_) return true;
    if (parts_ != nullptr && depth_ == 0) return fail("it is not a JSON object");
    if (isList_ && depth_ == 1) return fail(fmt::format("its '{}' is not a list", parts_->list));
    return put(json(std::forward<T>(value))) != nullptr && (!isInList() || handOut());
  }

  bool open(json::value_t kind) {
    if (++depth_ > limits_.mostDepth)
      return fail(
          fmt::format("it has more than {} levels of lists and objects", limits_.mostDepth));
    if (isPassedOver_) return true;
    if (parts_ != nullptr && depth_ == 1 && kind != json::value_t::object)
      return fail("it is not a JSON object");
    if (isList_ && depth_ == 2) {
      if (kind != json::value_t::array)
        return fail(fmt::format("its '{}' is not a list", parts_->list));
      hasList_ = true;
      return true;
    }
    json* place = put(json(kind));
    if (place == nullptr) return false;
    open_.push_back(place);
    return true;
  }

  bool close() {
    --depth_;
    if (depth_ == 0) isPassedOver_ = isList_ = false;
    if (isPassedOver_ || (isInList() && depth_ == 1)) return true;
    open_.pop_back();
    return !isInList() || handOut();
  }

  bool handOut() {
    values_ = 0;
    fault_ = parts_->take(element_, number_++, root_);
    return fault_.isOk();
  }

  const JsonLimits limits_;
  const JsonParts* const parts_;  // null: all of it
  json root_;
  std::vector<json*> open_;  // the lists and objects that have begun, from the root on
  json* slot_ = nullptr;     // of the key that was read last
  size_t depth_ = 0;
  size_t values_ = 0;
  Status fault_;

  // With parts:
  json element_;  // of the list
  uint64_t number_ = 0;
  bool hasList_ = false;
  bool isList_ = false;        // the outermost member that is read is the list
  bool isPassedOver_ = false;  // nobody wants it
};

}  // namespace

Result<json> parseJson(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.mostBytes)
    return Status(Code::kInvalidArgument,
                  fmt::format("it has more than {} bytes", limits.mostBytes));
  JsonBuilder builder(limits, nullptr);
  json::sax_parse(text, &builder, json::input_format_t::json, /*strict=*/true,
                  limits.mayHaveComments);
  return builder.finish();
}

std::string shortText(const json& value) {
  constexpr size_t kMost = 60;
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= kMost ? text : printable(text.substr(0, kMost)) + "...";
}

Status inOneLine(const Status& status) {
  return status.isOk() ? status : Status(status.code(), printable(status.message()));
}

Result<json> readJsonParts(std::istream& stream, const JsonParts& parts, const JsonLimits& limits) {
  JsonBuilder builder(limits, &parts);
  json::sax_parse(stream, &builder, json::input_format_t::json, /*strict=*/true,
                  limits.mayHaveComments);
  return builder.finish();
}

}  // namespace sluice::base
