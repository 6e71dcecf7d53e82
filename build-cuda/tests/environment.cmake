
set(ENV{OMP_WAIT_POLICY} PASSIVE)
set(ENV{ASAN_OPTIONS} detect_stack_use_after_return=0:strict_string_checks=1:check_initialization_order=1)
set(ENV{UBSAN_OPTIONS} print_stacktrace=1)
set(ENV{LSAN_OPTIONS} suppressions=/work/wt3/elem/tests/support/lsan.supp:print_suppressions=0)
set(ENV{TSAN_OPTIONS} suppressions=/work/wt3/elem/tests/support/tsan.supp:second_deadlock_stack=1)
