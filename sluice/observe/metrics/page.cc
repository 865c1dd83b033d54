#include <sluice/observe/metrics/page.h>

#include <iterator>

#include <fmt/format.h>

#include <sluice/transport/wire/drop.h>

namespace sluice::metrics {
namespace {

// Collects the rows of one metric over all sessions.
class Family final {
 public:
  Family(std::string_view name, std::string_view help, std::string_view type)
      : name_(fmt::format("sluice_{}", name)),
        text_(fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name_, help, type)) {}

  // `label` and `value` tell the rows of one session apart, if it has several. `ending` is of the
  // metric's name.
  template <typename Number>
  void add(const Reading& reading, Number number, std::string_view label = {},
           std::string_view value = {}, std::string_view ending = {}) {
    fmt::format_to(std::back_inserter(text_), "{}{}{{session=\"{}\",rank=\"{}\"", name_, ending,
                   escaped(reading.session), index(reading.rank));
    if (!label.empty())
      fmt::format_to(std::back_inserter(text_), ",{}=\"{}\"", label, escaped(value));
    fmt::format_to(std::back_inserter(text_), "}} {}\n", number);
  }

  void add(const Reading& reading, const base::Histogram& histogram) {
    add(reading, histogram.count(), {}, {}, "_count");
    add(reading, base::seconds(histogram.sum()), {}, {}, "_sum");
    for (const double q : {0.5, 0.9, 0.99})
      add(reading, base::seconds(histogram.quantile(q)), "quantile", fmt::to_string(q));
  }

  const std::string& text() const { return text_; }

 private:
  static std::string escaped(std::string_view value) {
    std::string text;
    for (const char c : value) {
      if (c == '\\' || c == '"') text += '\\';
      c == '\n' ? text.append("\\n") : text.append(1, c);
    }
    return text;
  }

  const std::string name_;
  std::string text_;
};

}  // namespace

std::string pageOf(std::span<const Reading> readings) {
  // A page may name each metric only once, so the rows of all sessions go into common families.
  Family steps("steps_total", "Steps begun", "counter");
  Family sent("sent_bytes_total", "Payload sent to other ranks", "counter");
  Family received("received_bytes_total", "Payload received from other ranks", "counter");
  Family messages("messages_total", "Messages sent and received", "counter");
  Family drops("dropped_messages_total", "Messages that were not let in, by reason", "counter");
  Family strangers("strangers_total", "Connections that did not prove the job key", "counter");
  Family slices("slices_total", "Slices that entered a stage of the path", "counter");
  Family credit("credit_used_bytes", "Bytes with the network, beyond recall", "gauge");
  Family waiting("queued_bytes", "Bytes that wait for credit or their turn", "gauge");
  Family inversion("inversion_seconds",
                   "How long urgent slices waited behind less urgent ones beyond recall",
                   "summary");
  Family waits("wait_seconds_total", "How long the forward pass stood before a layer's gate",
               "counter");
  Family up("peer_up", "1 while the rank is there, 0 once it has left or is lost", "gauge");
  Family silence("peer_silence_seconds", "Since the last byte from the rank", "gauge");
  Family busy("peer_busy_seconds", "How long the rank's loop has not turned; 0 if it is not busy",
              "gauge");

  for (const Reading& reading : readings) {
    const auto add = [&](Family& family, uint64_t number, std::string_view label = {},
                         std::string_view value = {}) {
      family.add(reading, number, label, value);
    };
    add(steps, reading.steps);
    add(sent, reading.fabric.bytesSent);
    add(received, reading.fabric.bytesReceived);
    add(messages, reading.fabric.messagesSent, "direction", "sent");
    add(messages, reading.fabric.messagesReceived, "direction", "received");
    for (size_t reason = 0; reason < wire::kDropReasons; ++reason) {
      add(drops, reading.fabric.drops.byReason[reason], "reason",
          wire::name(static_cast<wire::Drop>(reason)));
    }
    add(strangers, reading.fabric.strangers);
    for (const Stage stage : kPath) {
      add(slices, reading.slicesByStage[static_cast<size_t>(stage)], "stage", sluice::name(stage));
    }
    add(credit, reading.creditUsed);
    add(waiting, reading.bytesWaiting);
    inversion.add(reading, reading.inversion);
    for (size_t tensor = 0; tensor < reading.waited.size(); ++tensor) {
      waits.add(reading, base::seconds(reading.waited[tensor]), "layer", reading.tensors[tensor]);
    }
    for (const auto& [peer, state] : reading.peers) {
      const std::string name = fmt::to_string(index(peer));
      up.add(reading, state.isUp ? 1 : 0, "peer", name);
      silence.add(reading, base::seconds(state.silence), "peer", name);
      busy.add(reading, base::seconds(state.busy), "peer", name);
    }
  }
  std::string page;
  for (const Family* family : {&steps, &sent, &received, &messages, &drops, &strangers, &slices,
                               &credit, &waiting, &inversion, &waits, &up, &silence, &busy}) {
    page += family->text();
  }
  return page;
}

}  // namespace sluice::metrics
