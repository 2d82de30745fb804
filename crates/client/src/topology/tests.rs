//! Whom a change is told, whenever they come.

use std::sync::atomic::AtomicUsize;
use std::thread;

use super::*;
use crate::credentials::Access;
use crate::pool::PoolConfig;

/// Rounds of a race.
const ROUNDS: usize = 500;

/// A manager that follows nobody.
fn idle(seed: &HostPort) -> TopologyManager {
    let pool = ConnectionPool::new(PoolConfig::default(), Access::default());
    let manager = TopologyManager::start(vec![seed.clone()], pool, TopologyConfig::default());
    manager.stop();
    manager
}

#[test]
fn who_sees_a_view_and_listens_then_is_not_told_of_it_and_who_listened_before_is() {
    let seed: HostPort = "127.0.0.1:1".parse().unwrap();
    for _ in 0..ROUNDS {
        let manager = idle(&seed);
        let told = Arc::new(AtomicUsize::new(0));
        let first = Arc::clone(&told);
        let _first = manager.listen(move |_| _ = first.fetch_add(1, Ordering::SeqCst)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| manager.shared.apply_seeds());
            while manager.view().epoch == 0 {
                std::hint::spin_loop();
            }
            let late = Arc::clone(&told);
            let late = manager.listen(move |_| _ = late.fetch_add(100, Ordering::SeqCst)).unwrap();
            // Kept until the change was told.
            while told.load(Ordering::SeqCst).is_multiple_of(100) {
                std::hint::spin_loop();
            }
            drop(manager.shared.telling.lock());
            drop(late);
        });
        assert_eq!(told.load(Ordering::SeqCst), 1);
    }
}
