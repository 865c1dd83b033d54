#include <sluice/observe/metrics/families.h>

#include <utility>

#include <fmt/format.h>

#include <sluice/transport/wire/drop.h>

namespace sluice::metrics {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Collects the rows of one metric over all sessions.
class Family final {
 public:
  Family(std::string_view name, std::string_view help, MetricType type)
      : family_{fmt::format("sluice_{}", name), std::string(help), type, {}} {}

  // `label` and `value` tell the rows of one session apart, if it has several.
  void add(const Reading& reading, double number, std::string_view label = {},
           std::string_view value = {}) {
    ClientMetric& metric = row(reading, label, value);
    if (family_.type == MetricType::Counter) {
      metric.counter.value = number;
    } else {
      metric.gauge.value = number;
    }
  }

  void add(const Reading& reading, const base::Histogram& histogram) {
    ClientMetric::Summary& summary = row(reading, {}, {}).summary;
    summary.sample_count = histogram.count();
    summary.sample_sum = base::seconds(histogram.sum());
    for (const double q : {0.5, 0.9, 0.99})
      summary.quantile.push_back({q, base::seconds(histogram.quantile(q))});
  }

  MetricFamily take() { return std::move(family_); }

 private:
  ClientMetric& row(const Reading& reading, std::string_view label, std::string_view value) {
    ClientMetric& metric = family_.metric.emplace_back();
    metric.label.push_back({"session", reading.session});
    metric.label.push_back({"rank", fmt::to_string(index(reading.rank))});
    if (!label.empty()) metric.label.push_back({std::string(label), std::string(value)});
    return metric;
  }

  MetricFamily family_;
};

}  // namespace

std::vector<MetricFamily> familiesOf(std::span<const Reading> readings) {
  // A page may name each metric only once, so the rows of all sessions go into common families.
  Family steps("steps_total", "Steps begun", MetricType::Counter);
  Family sent("sent_bytes_total", "Payload sent to other ranks", MetricType::Counter);
  Family received("received_bytes_total", "Payload received from other ranks", MetricType::Counter);
  Family messages("messages_total", "Messages sent and received", MetricType::Counter);
  Family drops("dropped_messages_total", "Messages that were not let in, by reason",
               MetricType::Counter);
  Family strangers("strangers_total", "Connections that did not prove the job key",
                   MetricType::Counter);
  Family slices("slices_total", "Slices that entered a stage of the path", MetricType::Counter);
  Family credit("credit_used_bytes", "Bytes with the network, beyond recall", MetricType::Gauge);
  Family waiting("queued_bytes", "Bytes that wait for credit or their turn", MetricType::Gauge);
  Family inversion("inversion_seconds",
                   "How long urgent slices waited behind less urgent ones beyond recall",
                   MetricType::Summary);
  Family waits("wait_seconds_total", "How long the forward pass stood before a layer's gate",
               MetricType::Counter);
  Family up("peer_up", "1 while the rank is there, 0 once it has left or is lost",
            MetricType::Gauge);
  Family silence("peer_silence_seconds", "Since the last byte from the rank", MetricType::Gauge);
  Family busy("peer_busy_seconds", "How long the rank's loop has not turned; 0 if it is not busy",
              MetricType::Gauge);

  for (const Reading& reading : readings) {
    const auto add = [&](Family& family, uint64_t number, std::string_view label = {},
                         std::string_view value = {}) {
      family.add(reading, static_cast<double>(number), label, value);
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
  std::vector<MetricFamily> all;
  for (Family* family : {&steps, &sent, &received, &messages, &drops, &strangers, &slices, &credit,
                         &waiting, &inversion, &waits, &up, &silence, &busy}) {
    all.push_back(family->take());
  }
  return all;
}

}  // namespace sluice::metrics
