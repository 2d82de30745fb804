//! What the Python DistKV can hold. It does not load a file with anything else at all, so such
//! entries are left out of files that are written for it, and reported.
//!
//! - `true`, `1` and `1.0` are the same element of a path there, also within arrays. Of entries
//!   whose paths differ only in that, the one with the integer is kept, then the one with the
//!   boolean.
//! - A value must be one that every client can read ([`Value::check_readable`]: clients store no other, but
//!   it may have come from elsewhere). Of a map's keys none may come twice, and `true`, `1` and `1.0` are
//!   one key.
//! - In the system's own tree, some places take only what fits there.
//!
//! Whether a type in the system's own tree accepts its own examples is left to the reader.

use std::collections::HashSet;

use crate::model::path::{EXT_PATH, Element, Path};
use crate::model::value::write::write_array_len;
use crate::model::value::{Kind, ReadError, Reader, Value, ValueError};
use crate::tree::Tree;

/// Paths that are the same in Python are searched among this many at once. More exist only if
/// somebody made them on purpose.
const VARIANTS_MAX: usize = 64;
/// The limit for one array, whose forms cannot be searched item by item. Seven items that are 0 or
/// 1 have fewer.
const ARRAY_FORMS_MAX: usize = 4_096;

/// Why an entry cannot be in a file for the original.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Inexpressible {
    /// Python takes its path for another's.
    #[error("in Python its path is the same as {0}")]
    SamePath(Path),
    /// Its value.
    #[error("Python cannot read {0}")]
    Value(&'static str),
    /// It is in the system's own tree, at a place that takes something else.
    #[error("DistKV takes {0} at this place of its own tree")]
    Place(&'static str),
}

/// Whether an entry of a tree can be in a file for the original.
///
/// # Errors
/// It cannot, and why.
pub fn check_entry(tree: &Tree, path: &Path, value: &[u8]) -> Result<(), Inexpressible> {
    if let Some(other) = same_in_python(tree, path) {
        return Err(Inexpressible::SamePath(other));
    }
    check_value(value)?;
    if path.is_system() { check_place(path, value) } else { Ok(()) }
}

/// The entry's path that Python takes this one for, if that is another one which is kept.
fn same_in_python(tree: &Tree, path: &Path) -> Option<Path> {
    if !path.elements().any(has_other_forms) {
        return None;
    }
    // Prefixes that exist in the tree and are the same in Python, those that are kept first.
    let mut variants = vec![Path::root()];
    for element in path.elements() {
        let mut longer = Vec::new();
        let forms = forms(element);
        for prefix in &variants {
            for form in &forms {
                let whole = [prefix.as_bytes(), form].concat();
                let Ok(next) = Path::from_canonical(&whole) else { continue };
                if tree.subtree(&next).next().is_some() && longer.len() < VARIANTS_MAX {
                    longer.push(next);
                }
            }
        }
        variants = longer;
    }
    variants
        .into_iter()
        .find(|other| tree.get(other.as_bytes()).is_some_and(|e| !e.is_tombstone()))
        .filter(|other| other != path)
}

/// The integer that an element is in Python, and its rank among the elements that are the same.
fn integer_of(element: Element<'_>) -> Option<(i128, u8)> {
    match element {
        Element::Int(number) => Some((number, 0)),
        Element::Bool(value) => Some((i128::from(value), 1)),
        // Within these bounds a float without a fraction is exact as an integer.
        Element::Float(number) if number.fract() == 0.0 && number.abs() < 1e30 => {
            Some((number as i128, 2))
        }
        Element::Float(_)
        | Element::Nil
        | Element::Str(_)
        | Element::Bin(_)
        | Element::Array(_) => None,
    }
}

/// Whether an element may be the same in Python as one that is kept in its place. Recurses as deep as
/// arrays nest, as [`forms`] does: that is bounded where paths are read.
fn has_other_forms(element: Element<'_>) -> bool {
    match element {
        Element::Array(array) => array.items().any(has_other_forms),
        _ => integer_of(element).is_some_and(|(_, rank)| rank > 0),
    }
}

/// The canonical bytes of all elements that are the same as this one in Python, in the order of
/// preference.
fn forms(element: Element<'_>) -> Vec<Vec<u8>> {
    let encoded = |element: Element<'_>| {
        let mut bytes = Vec::new();
        element.encode(&mut bytes);
        bytes
    };
    if let Element::Array(array) = element {
        let mut head = Vec::new();
        write_array_len(array.items().count(), &mut head);
        return array.items().fold(vec![head], |longer, item| {
            let forms = forms(item);
            let pairs = longer.iter().flat_map(|start| forms.iter().map(move |form| (start, form)));
            pairs.take(ARRAY_FORMS_MAX).map(|(start, form)| [&**start, &**form].concat()).collect()
        });
    }
    let Some((number, _)) = integer_of(element) else { return vec![encoded(element)] };
    let mut forms = vec![Element::Int(number)];
    match number {
        0 => forms.push(Element::Bool(false)),
        1 => forms.push(Element::Bool(true)),
        _ => {}
    }
    let float = number as f64;
    if float as i128 == number {
        forms.push(Element::Float(float));
    }
    forms.into_iter().filter_map(|form| form.normalise().ok()).map(encoded).collect()
}

/// Whether the original can read a value, and keeps all of it.
///
/// # Errors
/// It cannot, and why.
pub fn check_value(value: &[u8]) -> Result<(), Inexpressible> {
    Value::check_readable(value).map_err(|error| match error {
        ValueError::Unreadable(why) => Inexpressible::Value(why.what()),
        ValueError::Skip(_) | ValueError::Trailing(_) => BROKEN,
    })?;
    find_doubled_key(&mut Reader::new(value))
}

/// What other checks have excluded.
const BROKEN: Inexpressible = Inexpressible::Value("bytes that are no MessagePack");

impl From<ReadError> for Inexpressible {
    fn from(_: ReadError) -> Self {
        BROKEN
    }
}

/// Reads one value, in search of a map of which a part would be lost. Recurses as deep as the check
/// before it has found values and paths to nest.
fn find_doubled_key(reader: &mut Reader<'_>) -> Result<(), Inexpressible> {
    match reader.peek_kind()? {
        Kind::Ext => {
            let (kind, content) = reader.read_ext()?;
            let mut elements = Reader::new(content);
            while kind == EXT_PATH && !elements.is_at_end() {
                find_doubled_key(&mut elements)?;
            }
        }
        Kind::Array => {
            for _ in 0..reader.read_array_len()? {
                find_doubled_key(reader)?;
            }
        }
        Kind::Map => {
            let mut keys = HashSet::new();
            for _ in 0..reader.read_map_len()? {
                let mut key = Vec::new();
                read_key(reader, &mut key)?;
                if !keys.insert(key) {
                    return Err(Inexpressible::Value("a map that has a key twice"));
                }
                find_doubled_key(reader)?;
            }
        }
        Kind::Nil | Kind::Bool | Kind::Int | Kind::Float | Kind::Str | Kind::Bin => {
            reader.skip()?
        }
    }
    Ok(())
}

/// Reads a map's key, and appends bytes that are the same for keys that are equal in Python.
fn read_key(reader: &mut Reader<'_>, same: &mut Vec<u8>) -> Result<(), Inexpressible> {
    match reader.peek_kind()? {
        Kind::Array => {
            let count = reader.read_array_len()?;
            same.push(b'a');
            same.extend_from_slice(&count.to_le_bytes());
            (0..count).try_for_each(|_| read_key(reader, same))
        }
        Kind::Bool => {
            let number = i128::from(reader.read_bool()?);
            push_number(number, same);
            Ok(())
        }
        Kind::Int => {
            push_number(reader.read_int()?, same);
            Ok(())
        }
        Kind::Float => {
            let number = reader.read_f64()?;
            match integer_of(Element::Float(number)) {
                Some((number, _)) => push_number(number, same),
                None => {
                    same.push(b'f');
                    same.extend_from_slice(&number.to_bits().to_le_bytes());
                }
            }
            Ok(())
        }
        // No map is a key: that was checked.
        Kind::Str | Kind::Ext | Kind::Nil | Kind::Bin | Kind::Map => {
            let raw = reader.read_raw()?;
            match Reader::new(raw).read_str_bytes() {
                // Whatever the width of its length.
                Ok(text) => {
                    same.push(b's');
                    same.extend_from_slice(&text.len().to_le_bytes());
                    same.extend_from_slice(text);
                }
                Err(_) => same.extend_from_slice(raw),
            }
            Ok(())
        }
    }
}

fn push_number(number: i128, same: &mut Vec<u8>) {
    same.push(b'i');
    same.extend_from_slice(&number.to_le_bytes());
}

/// What the original takes at a place of the system's own tree.
fn check_place(path: &Path, value: &[u8]) -> Result<(), Inexpressible> {
    let elements: Vec<Element<'_>> = path.elements().skip(1).collect();
    let Some((Element::Str(top), below)) = elements.split_first() else { return Ok(()) };
    let kind = Reader::new(value).peek_kind().ok();
    let needs = |fits: bool, what| if fits { Ok(()) } else { Err(Inexpressible::Place(what)) };
    match (*top, below) {
        ("type" | "codec", []) => needs(false, "no value"),
        ("match" | "conv" | "acl", []) | ("conv", [_]) => {
            needs(kind == Some(Kind::Nil), "no value")
        }
        ("type", _) => needs(kind == Some(Kind::Map), "a map"),
        ("codec", _) => needs(matches!(kind, Some(Kind::Map | Kind::Nil)), "a map or nil"),
        ("match", _) => needs(names_a_path(value, "type"), "a map with the path of a type"),
        ("conv", _) => needs(names_a_path(value, "codec"), "a map with the path of a codec"),
        ("acl", _) => needs(kind == Some(Kind::Str), "a string"),
        ("actor", []) => Ok(()),
        ("actor", [Element::Str("del")]) => needs(kind == Some(Kind::Map), "a map"),
        ("actor", _) => needs(false, "nothing"),
        _ => Ok(()),
    }
}

/// Whether a value is a map in which a field holds a path: as text, an array or an extension.
fn names_a_path(value: &[u8], field: &str) -> bool {
    let mut reader = Reader::new(value);
    let Ok(count) = reader.read_map_len() else { return false };
    for _ in 0..count {
        let (Ok(key), Ok(value)) = (reader.read_raw(), reader.read_raw()) else { return false };
        if Reader::new(key).read_str() == Ok(field) {
            let mut value = Reader::new(value);
            return match value.peek_kind() {
                Ok(Kind::Str | Kind::Array) => true,
                Ok(Kind::Ext) => matches!(value.read_ext(), Ok((EXT_PATH, _))),
                _ => false,
            };
        }
    }
    false
}

/// The highest of [`rank_for_python`].
pub(crate) const RANK_LAST: u8 = 2;

/// The order in which the original takes entries: what others refer to comes first. Lower comes
/// first; within one number the order of the tree.
#[must_use]
pub(crate) fn rank_for_python(path: &Path) -> u8 {
    if !path.is_system() {
        return 0;
    }
    match path.element(1) {
        Some(Element::Str("type" | "codec")) => 1,
        _ => RANK_LAST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::chain::Chain;
    use crate::model::entry::{Entry, EntryParts};
    use crate::model::ids::{Event, NodeIndex, Tick, Tock};

    fn tree_of(paths: &[&str]) -> Tree {
        let mut tree = Tree::new(1);
        for path in paths {
            let event = Event { node: NodeIndex(0), tick: Tick::new(1).unwrap() };
            let entry = Entry::new(&EntryParts {
                value: Some(&[0xc0]),
                chain: &Chain::first(event),
                tock: Tock::new(1).unwrap(),
                origin: None,
                time: None,
                extra: &[],
            });
            tree.insert(&path.parse().unwrap(), entry);
        }
        tree
    }

    #[test]
    fn of_paths_that_are_one_in_python_one_is_kept() {
        let cases: [(&[&str], &str, Option<&str>); 13] = [
            (&["a:t"], "a:t", None),
            (&["a:t", "a:1"], "a:t", Some("a:1")),
            (&["a:t", "a:1"], "a:1", None),
            (&["a:t", "a:1.x"], "a:t", None),
            (&["a:t.b:f", "a:1.b:0"], "a:t.b:f", Some("a:1.b:0")),
            (&["a:t.b", "a:1.c"], "a:t.b", None),
            (&["a:2", "a:t"], "a:2", None),
            (&["a:f", "a:1"], "a:f", None),
            (&["a:'x',True"], "a:'x',True", None),
            (&["a:'x',True", "a:'x',1"], "a:'x',True", Some("a:'x',1")),
            (&["a:'x',True", "a:'x',1"], "a:'x',1", None),
            (&["a:((1:.0,),)", "a:((True,),)"], "a:((1:.0,),)", Some("a:((True,),)")),
            (&["a:(True,).x", "a:(1,).y"], "a:(True,).x", None),
        ];
        for (paths, path, other) in cases {
            let found = same_in_python(&tree_of(paths), &path.parse().unwrap());
            assert_eq!(found, other.map(|p| p.parse().unwrap()), "{paths:?} {path}");
        }
        let float = Path::from_elements([Element::Str("a"), Element::Float(2.0)]).unwrap();
        let mut tree = tree_of(&["a:2"]);
        tree.insert(&float, tree.get("a:2".parse::<Path>().unwrap().as_bytes()).unwrap().clone());
        assert_eq!(same_in_python(&tree, &float), Some("a:2".parse().unwrap()));
    }

    #[test]
    fn values_that_python_cannot_read_are_told_from_those_that_it_can() {
        let good: [&[u8]; 8] = [
            b"\xc0",
            b"\x81\x01\x82\xa1a\x01\xa1b\x02",
            b"\xd6\xff\x00\x00\x00\x01",
            b"\xc7\x09\x02\x01\x00\x00\x00\x00\x00\x00\x00\x00",
            b"\xd5\x03\xa1a",
            b"\xca\x7f\xc0\x00\x00",
            b"\x82\x01\x01\xa11\x01",
            b"\x81\x92\x01\x02\xc0",
        ];
        for value in good {
            assert_eq!(check_value(value), Ok(()), "{value:x?}");
        }
        let bad: [&[u8]; 11] = [
            b"\xa1\xff",
            b"\x91\xa1\xff",
            b"\x81\x80\x01",
            b"\x81\x91\x80\x01",
            b"\x82\x01\x01\xc3\x02",
            b"\xd4\xfe\x00",
            b"\xd4\xff\x00",
            b"\xd5\x03\xa2a",
            b"\xd5\x05\xa1a",
            b"\xc7\x06\x03\x82\x01\x01\xc3\x02\x00",
            b"\x81\xd4\x03\x80\x01",
        ];
        // Paths within paths, which no skipper counts: more than a stack holds.
        let mut deep = vec![0xc0; 7];
        while let length @ ..200_000 = deep.len() {
            let length = u32::try_from(length).unwrap().to_be_bytes();
            deep.splice(..0, [&[0xc9][..], &length, &[0x03]].concat());
        }
        for value in bad.into_iter().chain([&deep[..]]) {
            // Here they are values.
            Value::new(value).unwrap();
            assert!(matches!(check_value(value), Err(Inexpressible::Value(_))), "{value:x?}");
        }
    }

    #[test]
    fn the_system_s_own_tree_takes_what_fits() {
        let check = |path: &str, value: &[u8]| check_place(&path.parse().unwrap(), value).is_ok();
        assert!(check(":n.auth", b"\x01"));
        assert!(check(":n.match.a", b"\x81\xa4type\xa3int") && !check(":n.match.a", b"\x80"));
        assert!(check(":n.acl.x.y", b"\xa1r") && !check(":n.acl.x.y", b"\x01"));
        assert!(check(":n.actor.del", b"\x81\xa5nodes\x90") && !check(":n.actor.x", b"\x80"));
        assert!(!check(":n.type", b"\xc0") && check(":n.match", b"\xc0"));
        let rank = |path: &str| rank_for_python(&path.parse().unwrap());
        assert!(rank("a") < rank(":n.type.int") && rank(":n.codec.x") < rank(":n.match.a"));
    }
}
