#pragma once
#include <cxxabi.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

#include <tutti/config.hpp>
#include <tutti/os/memory.hpp>
#include <tutti/os/throw_errno.hpp>

// Declared here because the sanitizers' own headers are not installed everywhere. Called only under a sanitizer.
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack_save, const void* bottom, std::size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack_save, const void** bottom_old, std::size_t* size_old);
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}

namespace tutti::os {

/// A function on a stack of its own, which runs until it yields and continues there when it is resumed. It may yield
/// anywhere below the function, also while an exception is handled there. An exception must not leave the function:
/// that ends the process. A fiber that is destroyed before its function has ended frees its stack without unwinding it.
/// An overrun of the stack faults at a guard page. Not movable; resumed by one thread. Errors: error{out_of_resources}
/// from the constructor if there is no memory.
class fiber {
 public:
  fiber(std::size_t stack_bytes, std::function<void()> body) : body_(std::move(body)) {
    const std::size_t page = page_bytes();
    bytes_ = (stack_bytes + page - 1) / page * page + page;
    void* p =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (p == MAP_FAILED) throw_errno(errno, "cannot map a stack of " + format_bytes(bytes_));
    stack_ = static_cast<std::byte*>(p);
    if (::mprotect(stack_, page, PROT_NONE) != 0) {
      const int why = errno;
      ::munmap(stack_, bytes_);
      throw_errno(why, "cannot guard a stack");
    }
    inside_.bottom = stack_ + page;
    inside_.bytes = bytes_ - page;
    ::getcontext(&inside_.context);
    inside_.context.uc_stack.ss_sp = stack_ + page;
    inside_.context.uc_stack.ss_size = bytes_ - page;
    inside_.context.uc_link = nullptr;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    ::makecontext(&inside_.context, reinterpret_cast<void (*)()>(&enter), 2, static_cast<unsigned>(self >> 32),
                  static_cast<unsigned>(self & 0xffffffffu));
    // Zero, because only the address sanitizer reads it, and would forget all that it knows of this stack at every
    // switch.
    inside_.context.uc_stack.ss_size = 0;
    if constexpr (tutti::detail::thread_sanitizer) inside_.thread = thread_ = __tsan_create_fiber(0);
  }
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;
  ~fiber() {
    if constexpr (tutti::detail::thread_sanitizer) __tsan_destroy_fiber(thread_);
    ::munmap(stack_, bytes_);
  }

  /// Runs the function until it yields or ends. Must not be called once it has ended, nor by the fiber itself.
  void resume() noexcept {
    change(outside_, inside_, &outside_.fake_stack);
    if constexpr (tutti::detail::address_sanitizer)
      __sanitizer_finish_switch_fiber(outside_.fake_stack, &inside_.bottom, &inside_.bytes);
  }

  /// Yields to the caller of resume(); called by the function.
  void yield() noexcept {
    change(inside_, outside_, &inside_.fake_stack);
    arrive(inside_.fake_stack);
  }

  [[nodiscard]] bool ended() const noexcept { return ended_; }

 private:
  // The C++ runtime's state per thread: the exceptions being handled, and the number of those in flight.
  struct exceptions {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };
  // A suspended context. The inner one may be on the stack of another fiber, which this fiber runs and which has
  // yielded.
  struct side {
    ucontext_t context{};
    exceptions exception{};
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    void* fake_stack = nullptr;
    void* thread = nullptr;
  };

  static void enter(unsigned high, unsigned low) noexcept {
    auto* self = reinterpret_cast<fiber*>(static_cast<std::uintptr_t>(high) << 32 | low);
    self->arrive(nullptr);
    self->body_();
    self->ended_ = true;
    self->change(self->inside_, self->outside_, nullptr);
  }

  void arrive(void* fake_stack) noexcept {
    if constexpr (tutti::detail::address_sanitizer)
      __sanitizer_finish_switch_fiber(fake_stack, &outside_.bottom, &outside_.bytes);
    else
      (void)fake_stack;
  }

  static void change(side& from, side& to, void** fake_stack) noexcept {
    auto* live = abi::__cxa_get_globals();
    std::memcpy(&from.exception, static_cast<const void*>(live), sizeof(exceptions));
    std::memcpy(static_cast<void*>(live), &to.exception, sizeof(exceptions));
    if constexpr (tutti::detail::address_sanitizer)
      __sanitizer_start_switch_fiber(fake_stack, to.bottom, to.bytes);
    else
      (void)fake_stack;
    if constexpr (tutti::detail::thread_sanitizer) {
      from.thread = __tsan_get_current_fiber();
      __tsan_switch_to_fiber(to.thread, 0);
    }
    ::swapcontext(&from.context, &to.context);
  }

  std::function<void()> body_;
  std::byte* stack_ = nullptr;
  std::size_t bytes_ = 0;
  void* thread_ = nullptr;  // the thread sanitizer's handle of this fiber
  side inside_, outside_;
  bool ended_ = false;
};

}  // namespace tutti::os
