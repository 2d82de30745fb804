//! `key rotate` whose reader goes away: the rotation is carried out all the same.

use super::{key, lines};
use crate::cli::command::run_with_closed_output;
use crate::secure::Keys;

#[test]
fn a_rotation_is_carried_out_though_nobody_reads_what_is_printed() {
    let keys = Keys::new();
    let (file, old) = keys.make("a");
    let node = keys.run("a", &["--key", &file]);
    let client = node.client.to_string();
    let rotate = ["key", "rotate", "--remove-old", "--key", &file, "--connect", &client];
    let done = run_with_closed_output(&rotate);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    let (code, said) = key(&node, &file, &["list"]);
    assert!(code == Some(0) && !said.contains(&old), "{said}");
    let kept = lines(&file);
    let keys: Vec<_> = kept.iter().filter(|line| line.starts_with("key ")).collect();
    assert!(keys.len() == 1 && !keys[0].contains(&old), "{kept:?}");
}
