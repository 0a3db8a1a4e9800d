// Loading the library keeps freed memory in the process: fewer page faults in a training step (glibc
// only). SOT_PADDLE_TUNE=0 and a threshold that the user set leave it as it is.
#include <climits>
#include <cstdlib>
#include <cstring>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace sot::memory {

inline bool keep_freed() {
#ifdef __GLIBC__
  const char* tuned = std::getenv("SOT_PADDLE_TUNE");
  const bool is_off = tuned != nullptr && std::strcmp(tuned, "0") == 0;
  if (is_off || std::getenv("MALLOC_MMAP_THRESHOLD_") != nullptr) return false;
  const int largest = 32 << 20;  // that glibc accepts on 64 bits
  return mallopt(M_MMAP_THRESHOLD, largest) && mallopt(M_TRIM_THRESHOLD, INT_MAX);
#else
  return false;
#endif
}

const bool kept = keep_freed();

}  // namespace sot::memory
