//! Paths: what is canonical, the order, and properties of both.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::limits::PATH_NESTING_MAX;
use crate::path::arbitrary::{self, OwnedElement};
use crate::path::*;

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn canonical_form_of(elements: &str) -> Vec<u8> {
    Path::from_msgpack(&hex(elements)).unwrap().as_bytes().to_vec()
}

fn refused(elements: &str) -> (usize, ElementProblem) {
    match Path::from_msgpack(&hex(elements)).unwrap_err() {
        PathError::Element { index, problem } => (index, problem),
        other => panic!("{other}"),
    }
}

#[test]
fn every_form_of_an_element_becomes_the_canonical_one() {
    for (came, kept) in [
        ("cc05", "05"),
        ("cf0000000000000005", "05"),
        ("d005", "05"),
        ("d30000000000000080", "cc80"),
        ("d10100", "cd0100"),
        ("ce0000ffff", "cdffff"),
        ("d200010000", "ce00010000"),
        ("d30000000100000000", "cf0000000100000000"),
        ("d0ff", "ff"),
        ("d0e0", "e0"),
        ("d1ffdf", "d0df"),
        ("d2ffffff7f", "d1ff7f"),
        ("d3ffffffffffff7fff", "d2ffff7fff"),
        ("ca3fc00000", "cb3ff8000000000000"),
        ("cb8000000000000000", "cb0000000000000000"),
        ("ca80000000", "cb0000000000000000"),
        ("d90161", "a161"),
        ("da000161", "a161"),
        ("db0000000161", "a161"),
        ("c500026162", "c4026162"),
        ("c600000002ff00", "c402ff00"),
        ("c400", "a0"),
        ("c50000", "a0"),
        ("d900", "a0"),
        ("a161 cc05 c3 a162", "a161 05 c3 a162"),
        ("dc0000", "90"),
        ("dd00000002 cc05 d90161", "92 05 a161"),
        ("91 cd0001", "91 01"),
        ("91 91 ca3fc00000", "91 91 cb3ff8000000000000"),
        ("92 c400 cb8000000000000000", "92 a0 cb0000000000000000"),
        // A path is the array of its elements.
        ("c70003", "90"),
        ("d403 05", "91 05"),
        ("d503 a161", "91 a161"),
        ("91 d503 d0ff", "91 91 ff"),
        ("c70703 a161 dc000205c0", "92 a161 9205c0"),
    ] {
        assert_eq!(canonical_form_of(came), hex(kept), "{came}");
        let index = usize::from(came.starts_with("a161 "));
        assert_eq!(Path::from_canonical(&hex(came)), Err(PathError::NotCanonical { index }));
        let kept = hex(kept);
        assert!(PathBytes::from_msgpack(&kept).unwrap().is_borrowed());
        assert_eq!(Path::from_canonical(&kept).unwrap().as_bytes(), kept);
    }
}

#[test]
fn what_cannot_be_an_element_is_refused_with_its_place() {
    use ElementProblem::*;
    assert_eq!(refused("a161 c0"), (1, NilInside));
    assert_eq!(refused("c0 c0"), (1, NilInside));
    assert_eq!(refused("8101a0"), (0, Map));
    assert_eq!(refused("a161 d40561"), (1, Ext(5)));
    assert_eq!(refused("a161 92 01 80"), (1, Map));
    assert_eq!(refused("a161 91 d40561"), (1, Ext(5)));
    assert_eq!(refused("91 c70902 010000000000000000"), (0, IntegerTooBig));
    assert_eq!(refused("91 91 cb7ff8000000000000"), (0, NotANumber));
    assert_eq!(refused("91 a1ff"), (0, NotUtf8));
    assert_eq!(refused("91 c1"), (0, Invalid));
    assert_eq!(refused("9201"), (0, Truncated));
    assert_eq!(refused("92 01 a2"), (0, Truncated));
    assert_eq!(refused("c70203 9201"), (0, Truncated));
    assert_eq!(refused("ddffffffff"), (0, Truncated));
    assert_eq!(refused("91 c0 c0"), (1, NilInside));
    assert_eq!(refused("c70902 010000000000000000"), (0, IntegerTooBig));
    assert_eq!(refused("cb7ff8000000000000"), (0, NotANumber));
    assert_eq!(refused("ca7fc00000"), (0, NotANumber));
    assert_eq!(refused("a161 a2c328"), (1, NotUtf8));
    assert_eq!(refused("a161 c1"), (1, Invalid));
    assert_eq!(refused("a161 a261"), (1, Truncated));
    assert_eq!(refused("cd01"), (0, Truncated));
    assert_eq!(refused("dbffffffff"), (0, Truncated));
    // The error is the same if something before it was not canonical.
    assert_eq!(refused("cc05 c0"), (1, NilInside));
    let message = Path::from_msgpack(&hex("a161c0")).unwrap_err().to_string();
    assert_eq!(message, "element 1 of the path is nil, which only the first one may be");
}

#[test]
fn limits_count_canonical_elements_and_bytes() {
    let most = vec![0x05; PATH_ELEMENTS_MAX];
    assert_eq!(Path::from_msgpack(&most).unwrap().len(), PATH_ELEMENTS_MAX);
    let more = vec![0x05; PATH_ELEMENTS_MAX + 1];
    assert_eq!(Path::from_msgpack(&more), Err(PathError::TooManyElements));
    assert_eq!(Path::from_msgpack(&[0xcc, 5].repeat(65)), Err(PathError::TooManyElements));
    // Twice as long as they will be, but within the limits.
    assert_eq!(Path::from_msgpack(&[0xcc, 5].repeat(64)).unwrap().as_bytes(), most);

    let longest = "a".repeat(PATH_BYTES_MAX - 3);
    let path = Path::root().push(longest.as_str()).unwrap();
    assert_eq!(path.as_bytes().len(), PATH_BYTES_MAX);
    assert_eq!(Path::from_canonical(path.as_bytes()).unwrap(), path);
    assert_eq!(path.push(1_i64), Err(PathError::TooLong));
    assert_eq!(path.join(&path), Err(PathError::TooLong));
    let mut longer = path.as_bytes().to_vec();
    longer.push(1);
    assert_eq!(Path::from_msgpack(&longer), Err(PathError::TooLong));
    longer.splice(0..1, [0xdb, 0, 0]);
    longer.pop();
    assert_eq!(Path::from_msgpack(&longer).unwrap(), path);
    assert_eq!(Path::root().push(&*vec![0; 1 << 20]), Err(PathError::TooLong));
}

#[test]
fn arrays_nest_so_deep_and_no_deeper() {
    let nested = |head: &[u8], levels: usize| [head.repeat(levels), vec![0x90]].concat();
    // The innermost one is empty.
    let deepest = nested(&[0x91], PATH_NESTING_MAX - 1);
    let path = Path::from_canonical(&deepest).unwrap();
    assert_eq!((path.len(), path.as_bytes()), (1, &deepest[..]));
    let too_deep = PathError::Element { index: 0, problem: ElementProblem::TooDeep };
    for levels in [PATH_NESTING_MAX, 1_000, 100_000] {
        assert_eq!(Path::from_msgpack(&nested(&[0x91], levels)), Err(too_deep), "{levels}");
    }
    let mut paths = vec![0xc7, 0, 3];
    for level in 1..=PATH_NESTING_MAX {
        match Path::from_msgpack(&paths) {
            Ok(path) => assert_eq!(path.as_bytes(), nested(&[0x91], level - 1)),
            Err(error) => panic!("{level}: {error}"),
        }
        paths = [&[0xc7, paths.len() as u8, 3], &paths[..]].concat();
    }
    assert_eq!(Path::from_msgpack(&paths), Err(too_deep));
    assert_eq!(Array::from_items(&deepest), Err(ElementProblem::TooDeep));
}

#[test]
fn an_array_counts_as_one_element_and_with_all_its_bytes() {
    let items = vec![0x05; PATH_BYTES_MAX - 3];
    let longest = [&[0xdc, 0x0f, 0xfd], &items[..]].concat();
    let path = Path::from_canonical(&longest).unwrap();
    assert_eq!((path.len(), path.as_bytes().len()), (1, PATH_BYTES_MAX));
    assert_eq!(path.push(1_i64), Err(PathError::TooLong));
    let more = [&[0xdc, 0x0f, 0xfe, 0x05], &items[..]].concat();
    assert_eq!(Path::from_msgpack(&more), Err(PathError::TooLong));
    // Nine times as long as it will be.
    let wide = [0xcf, 0, 0, 0, 0, 0, 0, 0, 5].repeat(PATH_BYTES_MAX - 3);
    let wide = [&[0xdc, 0x0f, 0xfd], &wide[..]].concat();
    assert_eq!(Path::from_msgpack(&wide).unwrap(), path);
    let huge = [&[0xdd, 0, 0x10, 0, 0], &vec![0x05; 1 << 20][..]].concat();
    let too_long = PathError::Element { index: 0, problem: ElementProblem::TooLong };
    assert_eq!(Path::from_msgpack(&huge), Err(too_long));
}

#[test]
fn parts_of_a_path_with_arrays_are_paths() {
    let long = path("a:'t',1.b:()");
    assert_eq!(long.as_bytes(), hex("a161 92a17401 a162 90"));
    assert_eq!((long.len(), long.parent().unwrap()), (4, path("a:'t',1.b")));
    assert_eq!(long.element_ends().collect::<Vec<_>>(), [2, 6, 8, 9]);
    assert!(bytes::has_array(long.as_bytes()) && bytes::has_array(path(":()").as_bytes()));
    assert!(!bytes::has_array(path("a.b:1:vx").as_bytes()) && !bytes::has_array(b""));
    let Some(Element::Array(array)) = long.element(1) else { panic!("no array") };
    assert_eq!(array.items().collect::<Vec<_>>(), [Element::Str("t"), Element::Int(1)]);
    assert_eq!(path("a").push(array).unwrap(), path("a:'t',1"));
    let raw: Vec<_> = bytes::raw_elements(long.as_bytes()).collect();
    assert_eq!(raw[1], hex("92a17401"));
    // Neither is above the other.
    assert!(!path("a:1,2").starts_with(&path("a:(1,)")));
    assert_eq!(common_elements(path("a:1,2").as_bytes(), path("a:1,3").as_bytes()), 1);
}

#[test]
fn elements_are_no_larger_for_arrays() {
    assert_eq!(size_of::<Element<'_>>(), 32);
}

#[test]
fn true_and_1_are_two_items() {
    let all: BTreeSet<Path> = [":(True,)", ":(1,)", ":(1:.0,)", ":('1',)"].map(path).into();
    assert_eq!(all.len(), 4);
    assert_ne!(path(":(True,)").element(0), path(":(1,)").element(0));
}

#[test]
fn a_value_is_a_path_if_it_is_an_array_or_extension_3() {
    let expected = path("a:1");
    for value in ["92a16101", "92d90161cc01", "dc0002a16101", "dd00000002a16101", "c70303a16101"] {
        assert_eq!(Path::from_msgpack_value(&hex(value)).unwrap(), expected, "{value}");
    }
    for value in ["90", "c70003", "c8000003"] {
        assert!(Path::from_msgpack_value(&hex(value)).unwrap().is_root(), "{value}");
    }
    let error = |value| Path::from_msgpack_value(&hex(value)).unwrap_err();
    assert_eq!(error("a161"), PathError::NotAPath("a string"));
    assert_eq!(error("c0"), PathError::NotAPath("nil"));
    assert_eq!(error("80"), PathError::NotAPath("a map"));
    assert_eq!(error("d40461"), PathError::NotAPath("another extension"));
    assert_eq!(error("c1"), PathError::NotAPath("the byte 0xc1"));
    assert_eq!(error(""), PathError::Truncated);
    assert_eq!(error("c70503a161"), PathError::Truncated);
    assert_eq!(error("9101a0"), PathError::Trailing(1));
    assert_eq!(error("c7000300"), PathError::Trailing(1));
    assert_eq!(error("ddffffffff"), PathError::Truncated);
    let one_element_too_many = [&[0xdc, 0, 65], &[1; 65][..]].concat();
    assert_eq!(Path::from_msgpack_value(&one_element_too_many), Err(PathError::TooManyElements));
    let short = Path::from_msgpack_value(&hex("9292a161")).unwrap_err();
    assert_eq!(short, PathError::Element { index: 0, problem: ElementProblem::Truncated });
}

#[test]
fn a_canonical_path_is_not_copied() {
    let value = hex("93a16105c402ff00");
    let borrowed = PathBytes::from_msgpack_value(&value).unwrap();
    assert!(borrowed.is_borrowed());
    assert_eq!((borrowed.len(), borrowed.as_bytes()), (3, &value[1..]));
    let value = hex("93a161cc05c402ff00");
    let copied = PathBytes::from_msgpack_value(&value).unwrap();
    assert!(!copied.is_borrowed());
    assert_eq!((copied.len(), copied.to_path()), (3, borrowed.into_path()));
}

#[test]
fn true_and_1_and_1_point_0_are_three_elements() {
    let all: BTreeSet<Path> = [":t", ":1", ":1:.0", "1"].map(path).into();
    assert_eq!(all.len(), 4);
}

#[test]
fn elements_are_ordered_by_type_then_value() {
    let ordered = [
        ":",
        ":n",
        ":n:t",
        ":n.a",
        ":f",
        ":f:f",
        ":t",
        ":-9223372036854775808",
        ":-129",
        ":-128",
        ":-1",
        ":0",
        ":0.a",
        ":5",
        ":127",
        ":128",
        ":256",
        ":65536",
        ":4294967296",
        ":9223372036854775808",
        ":18446744073709551615",
        ":-inf",
        ":-1:.5",
        ":0:.0",
        ":0:.1",
        ":1e+300",
        ":inf",
        ":e",
        ":e:e",
        ":e.b",
        "A",
        "a",
        "a:1",
        "a.a",
        "a.b",
        "aa",
        "ab",
        "b",
        "bcdefghijklmnopqrstuvwxyzabcdefghijklmnop",
        "c",
        "ü",
        ":y00",
        ":va",
        ":vb",
        ":()",
        ":().a",
        ":(None,)",
        ":None,None",
        ":None,1",
        ":(False,)",
        ":(1,)",
        ":1,2",
        ":1,2,0",
        ":1,10",
        ":(256,)",
        ":(1:.0,)",
        ":('',)",
        ":'a',1",
        ":'a',()",
        ":('b',)",
        ":(b'a',)",
        ":((),)",
        ":((1,:_2),)",
        ":(1,:_2),0",
        ":((1,:_3),)",
    ]
    .map(path);
    for (i, a) in ordered.iter().enumerate() {
        for (j, b) in ordered.iter().enumerate() {
            assert_eq!(a.cmp(b), i.cmp(&j), "{a} and {b}");
        }
    }
}

#[test]
fn parts_of_a_path_are_paths() {
    let long = path("a.b:1:t.c");
    assert_eq!(long.len(), 5);
    assert_eq!(long.parent().unwrap(), path("a.b:1:t"));
    assert_eq!(path("a").parent().unwrap(), Path::root());
    assert_eq!(Path::root().parent(), None);
    assert_eq!(Path::system_root().parent().unwrap(), Path::root());
    assert_eq!(long.prefix(0), Path::root());
    assert_eq!(long.prefix(3), path("a.b:1"));
    assert_eq!(long.prefix(5), long);
    assert_eq!(long.prefix(99), long);
    assert_eq!(long.first(), Some(Element::Str("a")));
    assert_eq!(long.last(), Some(Element::Str("c")));
    assert_eq!(long.element(2), Some(Element::Int(1)));
    assert_eq!(long.element(5), None);
    assert_eq!(Path::root().last(), None);
    assert_eq!(path("a.b").join(&path(":1:t.c")).unwrap(), long);
    assert_eq!(Path::root().join(&path(":n.x")).unwrap(), path(":n.x"));
    let nil_inside = PathError::Element { index: 1, problem: ElementProblem::NilInside };
    assert_eq!(path("a").join(&path(":n.x")), Err(nil_inside));
    assert_eq!(path("a").push(Element::Nil), Err(nil_inside));
    assert_eq!(Path::root().push(Element::Nil).unwrap(), Path::system_root());
    assert_eq!(path("a").push(&b""[..]).unwrap(), path("a:e"));
    assert_eq!(path("a").push(-0.0).unwrap(), path("a:0:.0"));
    assert!(path("a").push(f64::NAN).is_err());
    assert!(path("a").push(Element::Int(1 << 64)).is_err());
    assert!(path("a").push(Element::Int(-(1 << 63) - 1)).is_err());
    assert_eq!(long.strip_prefix(&path("a.b:1")), Some(&hex("c3a163")[..]));
    assert_eq!(long.strip_prefix(&path("a.bb")), None);
    assert!(path(":n.a").is_system() && !path("n").is_system() && !Path::root().is_system());
    let raw: Vec<_> = bytes::raw_elements(long.as_bytes()).collect();
    assert_eq!(raw, [hex("a161"), hex("a162"), hex("01"), hex("c3"), hex("a163")]);
}

#[test]
fn the_empty_path_before_nothing_and_after_nothing() {
    assert_eq!(cmp_paths(b"", b""), Ordering::Equal);
    assert_eq!(common_elements(b"", b"\x01"), 0);
    assert_eq!(bytes::first_element(b""), None);
    assert_eq!(Path::root().element_ends().count(), 0);
}

#[test]
fn an_extension_takes_the_shortest_of_its_forms() {
    let head_of = |length: usize| {
        let mut out = Vec::new();
        bytes::encode_ext3(&vec![1; length], &mut out);
        assert_eq!(
            out.len() - length,
            if matches!(length, 1 | 2 | 4 | 8 | 16) {
                2
            } else if length < 256 {
                3
            } else {
                4
            }
        );
        out.truncate(out.len() - length);
        out
    };
    assert_eq!(head_of(0), hex("c70003"));
    assert_eq!(head_of(1), hex("d403"));
    assert_eq!(head_of(2), hex("d503"));
    assert_eq!(head_of(3), hex("c70303"));
    assert_eq!(head_of(4), hex("d603"));
    assert_eq!(head_of(8), hex("d703"));
    assert_eq!(head_of(16), hex("d803"));
    assert_eq!(head_of(17), hex("c71103"));
    assert_eq!(head_of(255), hex("c7ff03"));
    assert_eq!(head_of(256), hex("c8010003"));
}

#[test]
fn an_extension_on_the_wire_is_as_the_python_client_sends_it() {
    for (text, bytes) in [
        ("h7bbb7033.pe.a", "c70f03 a9683762626237303333 a27065 a161"),
        ("h7bbb7033.pe:e", "c70e03 a9683762626237303333 a27065 a0"),
        ("h7bbb7033.pe.ü", "d803 a9683762626237303333 a27065 a2c3bc"),
        ("h7bbb7033.pe:0", "c70e03 a9683762626237303333 a27065 00"),
        ("h7bbb7033.pe:-1", "c70e03 a9683762626237303333 a27065 ff"),
        ("h7bbb7033.pe:1099511627776", "c71603 a9683762626237303333 a27065 cf0000010000000000"),
        ("h7bbb7033.pe:1:.5", "c71603 a9683762626237303333 a27065 cb3ff8000000000000"),
        ("h7bbb7033.pe:t", "c70e03 a9683762626237303333 a27065 c3"),
        ("h7bbb7033.pe:vbytes", "c71403 a9683762626237303333 a27065 c4056279746573"),
        (":.distkv.config", "c70f03 a72e646973746b76 a6636f6e666967"),
    ] {
        let mut out = Vec::new();
        path(text).encode_ext3(&mut out);
        assert_eq!(out, hex(bytes), "{text}");
        assert_eq!(Path::from_msgpack_value(&out).unwrap(), path(text));
    }
}

/// Paths of strings whose bytes are the lowest that there are.
fn nul_path() -> impl Strategy<Value = Path> {
    proptest::collection::vec("[\0\x01a]{0,17}", 0..4)
        .prop_map(|texts| Path::from_elements(texts.iter().map(|text| Element::Str(text))).unwrap())
}

/// The order by the decoded elements, as simple as can be.
fn slow_order(a: &Path, b: &Path) -> Ordering {
    let (mut a, mut b) = (a.elements(), b.elements());
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) if a.order(&b).is_eq() => {}
            (Some(a), Some(b)) => return a.order(&b),
        }
    }
}

/// As rmpv, an independent implementation, writes the elements: shortest forms too.
fn by_rmpv(elements: &[OwnedElement]) -> Vec<u8> {
    let mut out = Vec::new();
    for element in elements {
        let value = match element {
            OwnedElement::Nil => rmpv::Value::Nil,
            OwnedElement::Bool(value) => (*value).into(),
            OwnedElement::Int(number) => match u64::try_from(*number) {
                Ok(number) => number.into(),
                Err(_) => (*number as i64).into(),
            },
            // -0.0 + 0.0 is 0.0
            OwnedElement::Float(number) => (number + 0.0).into(),
            OwnedElement::Str(text) => text.as_str().into(),
            OwnedElement::Bin(bytes) if bytes.is_empty() => "".into(),
            OwnedElement::Bin(bytes) => bytes.as_slice().into(),
            OwnedElement::Array(items) => {
                let mut items = items.as_slice();
                let mut values = Vec::new();
                while !items.is_empty() {
                    values.push(rmpv::decode::read_value(&mut items).unwrap());
                }
                rmpv::Value::Array(values)
            }
        };
        rmpv::encode::write_value(&mut out, &value).unwrap();
    }
    out
}

/// The elements in their longest forms.
fn in_wide_forms(path: &Path) -> Vec<u8> {
    wide_forms(path.elements())
}

fn wide_forms<'a>(elements: impl Iterator<Item = Element<'a>>) -> Vec<u8> {
    let mut out = Vec::new();
    let long = |marker: u8, content: &[u8], out: &mut Vec<u8>| {
        out.push(marker);
        out.extend((content.len() as u32).to_be_bytes());
        out.extend(content);
    };
    for element in elements {
        match element {
            Element::Int(number) => match i64::try_from(number) {
                Ok(number) => out.extend([&[0xd3][..], &number.to_be_bytes()].concat()),
                Err(_) => out.extend([&[0xcf][..], &(number as u64).to_be_bytes()].concat()),
            },
            Element::Float(number) if f64::from(number as f32) == number => {
                out.extend([&[0xca][..], &(number as f32).to_be_bytes()].concat());
            }
            Element::Float(number) => rmp::encode::write_f64(&mut out, number).unwrap(),
            Element::Str("") => long(0xc6, b"", &mut out),
            Element::Str(text) => long(0xdb, text.as_bytes(), &mut out),
            Element::Bin(bytes) => long(0xc6, bytes, &mut out),
            Element::Bool(value) => rmp::encode::write_bool(&mut out, value).unwrap(),
            Element::Nil => rmp::encode::write_nil(&mut out).unwrap(),
            Element::Array(array) if array.items().count() % 2 == 0 => {
                out.push(0xdd);
                out.extend((array.items().count() as u32).to_be_bytes());
                out.extend(wide_forms(Box::new(array.items()) as Box<dyn Iterator<Item = _>>));
            }
            // As a path.
            Element::Array(array) => {
                let items = wide_forms(Box::new(array.items()) as Box<dyn Iterator<Item = _>>);
                out.push(0xc9);
                out.extend((items.len() as u32).to_be_bytes());
                out.push(3);
                out.extend(items);
            }
        }
    }
    out
}

proptest! {
    #[test]
    fn wide_forms_give_the_same_path(path in arbitrary::path()) {
        let wide = in_wide_forms(&path);
        prop_assert_eq!(&Path::from_msgpack(&wide).unwrap(), &path);
        prop_assert_eq!(Path::from_canonical(&wide).is_ok(), wide == path.as_bytes());
    }

    #[test]
    fn canonical_bytes_are_those_of_an_independent_encoder(elements in arbitrary::elements()) {
        let expected = by_rmpv(&elements);
        let path = Path::from_elements(elements.iter().map(OwnedElement::borrow)).unwrap();
        prop_assert_eq!(path.as_bytes(), &expected);
        prop_assert!(PathBytes::from_msgpack(&expected).unwrap().is_borrowed());
        prop_assert_eq!(path.len(), elements.len());
        let again = Path::from_elements(path.elements()).unwrap();
        prop_assert_eq!(again, path);
    }

    #[test]
    fn both_forms_on_the_wire_are_read_back(path in arbitrary::path()) {
        let (mut ext, mut array) = (Vec::new(), Vec::new());
        path.encode_ext3(&mut ext);
        path.encode_array(&mut array);
        prop_assert_eq!(&Path::from_msgpack_value(&ext).unwrap(), &path);
        prop_assert_eq!(&Path::from_msgpack_value(&array).unwrap(), &path);
        prop_assert!(PathBytes::from_msgpack_value(&array).unwrap().is_borrowed());
    }

    #[test]
    fn where_the_beginnings_differ_paths_are_in_the_same_order(
        a in prop_oneof![arbitrary::path(), arbitrary::small_path(), nul_path()],
        b in prop_oneof![arbitrary::path(), arbitrary::small_path(), nul_path()],
    ) {
        let (first, second) = (order_prefix(a.as_bytes()), order_prefix(b.as_bytes()));
        if first != second {
            prop_assert_eq!(first.cmp(&second), a.cmp(&b));
        }
    }

    #[test]
    fn the_fast_order_is_the_slow_order(
        a in prop_oneof![arbitrary::path(), arbitrary::small_path()],
        b in prop_oneof![arbitrary::path(), arbitrary::small_path()],
    ) {
        prop_assert_eq!(a.cmp(&b), slow_order(&a, &b));
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        prop_assert_eq!(a.cmp(&b).is_eq(), a == b);
    }

    #[test]
    fn the_order_is_transitive(
        mut paths in proptest::collection::vec(arbitrary::small_path(), 3),
    ) {
        paths.sort_by(slow_order);
        prop_assert!(paths[0] <= paths[1] && paths[1] <= paths[2] && paths[0] <= paths[2]);
    }

    #[test]
    fn a_subtree_is_one_range_right_behind_its_root(
        paths in proptest::collection::btree_set(arbitrary::small_path(), 0..60),
        top in arbitrary::small_path(),
    ) {
        let by_walking: Vec<_> = paths.iter().filter(|path| path.starts_with(&top)).collect();
        let by_range: Vec<_> =
            paths.range(top.clone()..).take_while(|path| path.starts_with(&top)).collect();
        prop_assert_eq!(&by_walking, &by_range);
        if paths.contains(&top) {
            prop_assert_eq!(by_range[0], &top);
        }
    }

    #[test]
    fn prefixes_and_what_is_common_agree(a in arbitrary::small_path(), b in arbitrary::small_path()) {
        let common = common_elements(a.as_bytes(), b.as_bytes());
        let expected = a.elements().zip(b.elements()).take_while(|(a, b)| a == b).count();
        prop_assert_eq!(common, expected);
        let top = a.prefix(common);
        prop_assert_eq!(&top, &b.prefix(common));
        let rest = Path::from_canonical(a.strip_prefix(&top).unwrap()).unwrap();
        prop_assert_eq!(&top.join(&rest).unwrap(), &a);
        prop_assert_eq!(a.starts_with(&b), common == b.len());
        let ends: Vec<usize> = a.element_ends().collect();
        let prefixes: Vec<usize> = (1..=a.len()).map(|n| a.prefix(n).as_bytes().len()).collect();
        prop_assert_eq!(ends, prefixes);
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), other: Vec<u8>) {
        if let Ok(path) = Path::from_msgpack(&bytes) {
            prop_assert_eq!(Path::from_canonical(path.as_bytes()).unwrap(), path);
        }
        let _ = Path::from_msgpack_value(&bytes);
        let _ = cmp_paths(&bytes, &other);
        let _ = bytes::parent(&bytes);
        prop_assert!(bytes::elements(&bytes).count() <= bytes.len());
    }
}
