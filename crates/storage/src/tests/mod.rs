//! Tests of the storage as a whole: what was written comes back, or is refused.

mod clocks;
mod damage;
mod faults;
mod growing;
mod holes;
mod hostile;
mod node;
mod on_disk;
mod past;
mod random;
mod round_trip;
mod strange;
