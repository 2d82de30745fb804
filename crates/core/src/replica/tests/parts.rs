//! What goes in parts: each is of a bounded size, and all together are the whole.

use super::*;

#[test]
fn a_stream_comes_in_batches_of_a_bounded_size() {
    let mut a = node("a");
    let value = [&b"\xc5\x04\x00"[..], &[0; 1024]].concat();
    for number in 0..50 {
        write(&mut a, &format!("k{number}"), Some(&value));
    }
    let snapshot = Arc::new(a.begin_catch_up(&BTreeMap::new(), a.mark()).expect("not behind"));
    let mut stream = snapshot.stream(snapshot.knowledge().seen.clone());
    let mut entries = 0;
    loop {
        let batch = stream.next_batch(4096);
        entries += batch.entries.len();
        assert!(batch.entries.len() <= 4, "the one that crosses the bound is the last");
        if batch.last {
            break;
        }
    }
    assert_eq!(entries, 50);
}

/// Whichever way the entries are found.
#[test]
fn what_belongs_to_the_system_comes_first_and_once() {
    let mut a = node("a");
    let user = |number: u64| Path::system_root().push(format!("user{number}").as_str()).unwrap();
    for number in 0..100 {
        write(&mut a, &format!("k{number}"), Some(&[1]));
        if number % 10 == 0 {
            a.write(&mut Write::new(user(number), Some(&[2]))).unwrap();
        }
    }
    let told = |a: &Replica, missing: &Seen| {
        let all = a.begin_catch_up(&BTreeMap::new(), a.mark()).expect("not behind");
        let mut stream = Arc::new(all).stream(missing.clone());
        let mut found = Vec::new();
        loop {
            let batch = stream.next_batch(200);
            found.extend(batch.entries.into_iter().map(|(path, _)| path));
            if batch.last {
                return found;
            }
        }
    };
    let all = a.seen.clone();
    // The first of the system's, and of the others, which are the first ten or so.
    let mut few = Seen::new();
    for (_, entry) in a.tree.all().filter(|(_, entry)| entry.newest().tick.get() <= 20) {
        few.insert(entry.newest());
    }
    let by_ring = told(&a, &all);
    a.ring = crate::replica::ring::Ring::after(&a.seen);
    let (in_order, by_walk) = (told(&a, &all), told(&a, &few));
    for (found, (count, of_system)) in
        [(by_ring, (110, 10)), (in_order, (110, 10)), (by_walk, (20, 2))]
    {
        assert_eq!(found.len(), count);
        let place = found.iter().position(|path| !path.is_system());
        assert_eq!(place, Some(of_system), "{found:?}");
        assert!(!found.iter().skip(of_system).any(Path::is_system), "{found:?}");
    }
}

#[test]
fn names_come_in_lists_of_a_bounded_size() {
    let (mut a, mut b) = (node("a"), node("b"));
    write(&mut a, "old", Some(&[1]));
    a.hear_tock(Tock::new(99).unwrap());
    write(&mut a, "old", None);
    purge(&mut a);
    for number in 0..20 {
        write(&mut b, &format!("k{number}"), Some(&[1]));
    }
    let (few, short) = (
        NamesMax { events: 0, paths: 3, bytes: 1 << 20 },
        NamesMax { events: 0, paths: 1 << 20, bytes: 12 },
    );
    for max in [few, short] {
        let their = Knowledge { seen: Seen::new(), mark: a.mark().clone(), tock: a.tock() };
        let mut crossing = b.begin_crossing(their);
        let mut named = 0;
        while let Some(paths) = b.next_names(&mut crossing, max) {
            named += paths.len();
            assert!(paths.len() <= max.paths);
            let bytes = paths.iter().map(|path| path.as_bytes().len());
            let before_the_last = bytes.take(paths.len().saturating_sub(1)).sum::<usize>();
            assert!(before_the_last < max.bytes, "{before_the_last}");
            crossing.take(&[]);
        }
        assert_eq!(named, 20);
        b.abandon_crossing();
    }
}
