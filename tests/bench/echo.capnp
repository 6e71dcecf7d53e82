@0xc2b0f4a86d1e7395;

# The smallest interface there is: what a call costs when nothing is done.
interface Echo {
  ping @0 () -> ();
}
