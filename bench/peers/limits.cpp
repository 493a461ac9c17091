// Physical limits of this machine for two processes on CPUs 0 and 1.
// Prints one JSON line per measurement: name, bytes, value, unit, hop_ns.
// Every value is a median; hop_ns (see harness.h) tells near from far placement.
#include <sys/wait.h>

#include "limits_memory.h"
#include "limits_sockets.h"

int main(int argc, char** argv) {
  sh = reinterpret_cast<Sync*>(pages(1 << 16, true));
  for (float*& p : slot) p = pages(kSlotBytes, true);
  me = fork() == 0 ? 1 : 0;
  pin(me);
  const std::string which = argc > 1 ? argv[1] : "all";
  auto want = [&](const char* s) { return which == "all" || which.find(s) != std::string::npos; };
  if (want("latency")) latency();
  if (want("memory")) memory();
  if (want("cross")) cross();
  if (want("cma")) cma();
  if (want("tcp")) tcp();
  if (want("touch")) first_touch();
  if (me == 1) _exit(0);
  int st;
  wait(&st);
  return 0;
}
