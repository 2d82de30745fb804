//! What is wrong in a configuration file, in a person's words.

use crate::cli::error::without_secrets;

/// Below this, two keys have too little in common for a guess.
const LIKENESS_MIN: f64 = 0.8;

/// What is wrong, on one line, without what looks like a secret: a running node logs it, too.
pub(in crate::cli::run) fn problem_of(error: &toml::de::Error) -> String {
    let text = error.message().trim().replace('\n', "; ");
    without_secrets(&unknown_key(&text).unwrap_or(text)).into_owned()
}

/// For a key that there is not: the one that is most like it, instead of the list of all that serde's text has.
fn unknown_key(text: &str) -> Option<String> {
    let mut quoted = text.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let key = quoted.next()?;
    if key == "discard-damaged" {
        return Some(format!("{key:?} is no key: give --{key} once, with one start"));
    }
    let likeness = |known: &str| strsim::jaro_winkler(key, known);
    let nearest = quoted.max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    Some(match nearest.filter(|known| likeness(known) >= LIKENESS_MIN) {
        Some(known) => format!("unknown key {key:?}; did you mean {known:?}?"),
        None => format!("unknown key {key:?}; `distkv-node run --help` lists all keys"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::run::settings::Settings;

    #[test]
    fn a_secret_in_a_wrong_place_is_not_shown() {
        let secret = "9eb2acd88a30c4d57ed91a7e6ec50537".repeat(2);
        for (line, expected) in [
            (format!("threads = \"{secret}\""), "invalid type: string \"[not shown"),
            (format!("{secret:?} = 1"), "unknown key \"[not shown"),
            (String::from("key = 123456"), "the name of a file or directory is wanted"),
        ] {
            let told = problem_of(&toml::from_str::<Settings>(&line).unwrap_err());
            assert!(told.starts_with(expected), "{told}");
            assert!(!told.contains(&secret) && !told.contains("123456"), "{told}");
        }
    }
}
