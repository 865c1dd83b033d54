// Lower bounds on the time of an iteration; every measurement is held against them. Pure functions.
//
// Words: layers 1..L in forward order; f, b their forward and backward times, F and B the sums.
// Time counts from the start of backward. Layer j's gradient is *ready* at r_j = b_L + .. + b_j;
// once layer j may start its forward, the *tail* q_j = f_j + .. + f_L is left. A message of M bytes
// takes a + b*M on the wire (WireCost).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <sluice/base/units.h>
#include <sluice/data/timing/profile.h>

namespace sluice::timing {

struct Layer {
  double forward = 0;   // seconds
  double backward = 0;  // seconds
  double bytes = 0;     // of its gradient
};

// Returns the profile stretched to `computeSeconds` for one forward and backward pass.
std::vector<Layer> layersOf(const Profile& profile, double computeSeconds,
                            DType dtype = DType::kF32);

struct WireCost {
  double start = 0;    // seconds per message: a
  double perByte = 0;  // seconds: b
  double of(double bytes) const { return start + perByte * bytes; }
};

double forwardSeconds(std::span<const Layer> layers);           // F
double backwardSeconds(std::span<const Layer> layers);          // B
std::vector<double> readyTimes(std::span<const Layer> layers);  // r
std::vector<double> tails(std::span<const Layer> layers);       // q

// P3: max(B+F, max_j r_j + sum_{l<=j} c_l + q_j), c_l the wire time of layer l. This is the best
// that one link can do; strict priority reaches it if a message can be interrupted. With W slices
// of s seconds each beyond recall, strict priority needs at most W*s more. `headStart` is the wire
// time of the bytes that a shaped link lets pass at once.
double p3Bound(std::span<const Layer> layers, const WireCost& wire, double headStart = 0);

// Wait-free backpropagation, one message per layer in the order of generation, the next forward
// after all: F + max(B, max_j r_j + sum_{l<=j} c_l).
double wfbpBound(std::span<const Layer> layers, const WireCost& wire);

// Pipe-SGD with K = 2: max(B+F+update, a + b*sum p).
double pipeBound(std::span<const Layer> layers, const WireCost& wire, double updateSeconds);

// Returns the rate at which TCP carries payload over a link of this rate. A shaped link counts
// Ethernet's, IP's and TCP's headers of every packet, also of packets that pass as one segment.
Rate payloadRate(Rate link);

// Seconds per NIC to push `bytes` of gradients to servers on all `ranks` hosts and to get the
// parameters back: 2(N-1)/N * bytes / rate. The part that a host keeps for itself does not travel.
double shardedWireSeconds(uint32_t ranks, double bytes, Rate rate);
// Returns that time as a cost per byte, for p3Bound.
WireCost shardedWire(uint32_t ranks, Rate rate);

// All-reduce of `ranks` over links of latency alpha (s), beta (s/byte) and summing speed gamma
// (s/byte), after table II of MG-WFBP. REQUIRES: ranks >= 1.
struct Link {
  double alpha = 0;
  double beta = 0;
  double gamma = 0;
};
WireCost binaryTree(uint32_t ranks, const Link& link);
WireCost recursiveDoubling(uint32_t ranks, const Link& link);
WireCost halvingDoubling(uint32_t ranks, const Link& link);
WireCost ring(uint32_t ranks, const Link& link);

}  // namespace sluice::timing
