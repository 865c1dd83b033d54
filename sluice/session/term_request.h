// Remembers SIGTERM instead of ending the process, for the option leave-on-term: the rank leaves at
// the end of its step. One or several per process; any thread.
#pragma once

namespace sluice::session {

class TermRequest final {
 public:
  // Takes SIGTERM if it has its default action: a handler that the program or its launcher has set,
  // or an ignored signal, stays as it is. A second SIGTERM ends the process, as it does without a
  // handler.
  TermRequest();
  ~TermRequest();
  TermRequest(const TermRequest&) = delete;
  TermRequest& operator=(const TermRequest&) = delete;

  // Returns false iff SIGTERM belongs to other code: came() then says nothing.
  bool hasSignal() const { return hasSignal_; }

  static bool came();

 private:
  bool hasSignal_ = false;
  bool isOwner_ = false;
};

}  // namespace sluice::session
