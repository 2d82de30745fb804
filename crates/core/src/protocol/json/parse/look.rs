//! The first pass over JSON that is to be a value: what is only known of something once it is over.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

use super::super::{JsonError, shown};
use super::{TOLD_PARTS, Text, fail, form_of};

/// What the first pass has found. Values are numbered as they begin, a map before what is in it; keys are none.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// A bit for each value, by its number; a missing one is not set. The maps that are forms have it.
    forms: Vec<u64>,
    /// The first one that stands among the pairs of a `$map` and is no pair.
    pub(super) no_pair: Option<usize>,
}

impl Looked {
    pub(super) fn is_form(&self, number: usize) -> bool {
        self.forms.get(number / 64).is_some_and(|bits| bits >> (number % 64) & 1 == 1)
    }

    pub(super) fn kept_bytes(&self) -> usize {
        size_of::<u64>() * self.forms.capacity()
    }

    fn mark(&mut self, number: usize) {
        if self.forms.len() <= number / 64 {
            self.forms.resize(number / 64 + 1, 0);
        }
        if let Some(bits) = self.forms.get_mut(number / 64) {
            *bits |= 1 << (number % 64);
        }
    }
}

/// The first pass.
pub(super) struct Look<'a> {
    pub(super) looked: Looked,
    /// How many values have begun.
    values: usize,
    /// What the sets of keys take.
    key_bytes: usize,
    keeps: &'a mut dyn FnMut(usize) -> bool,
    /// Why it ended, if that is not the parser's affair.
    pub(super) failure: Option<JsonError>,
}

impl<'a> Look<'a> {
    pub(super) fn new(keeps: &'a mut dyn FnMut(usize) -> bool) -> Self {
        Self { looked: Looked::default(), values: 0, key_bytes: 0, keeps, failure: None }
    }

    /// Begins a value; its number.
    fn begin<E: Error>(&mut self) -> Result<usize, E> {
        let number = self.values;
        self.values += 1;
        let kept = || self.key_bytes + self.looked.kept_bytes();
        match !number.is_multiple_of(TOLD_PARTS) || (self.keeps)(kept()) {
            true => Ok(number),
            false => Err(fail(&mut self.failure, JsonError::Stopped)),
        }
    }
}

/// One value for the first pass.
pub(super) struct LookAt<'a, 'k>(pub(super) &'a mut Look<'k>);

/// What the first pass tells of a value that has ended.
#[derive(Default)]
pub(super) struct Shape {
    /// The number of items, if it is an array.
    items: Option<usize>,
    /// The first of them that is not an array of two.
    no_pair: Option<usize>,
}

impl<'de> DeserializeSeed<'de> for LookAt<'_, '_> {
    type Value = Shape;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Shape, D::Error> {
        let number = self.0.begin()?;
        json.deserialize_any(LookVisitor { look: self.0, number })
    }
}

struct LookVisitor<'a, 'k> {
    look: &'a mut Look<'k>,
    number: usize,
}

impl<'de> Visitor<'de> for LookVisitor<'_, '_> {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Shape, E> {
        Ok(Shape::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
        Ok(Shape::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
        Ok(Shape::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Shape, A::Error> {
        let look = self.look;
        let (mut count, mut no_pair) = (0, None);
        loop {
            let number = look.values;
            let Some(item) = items.next_element_seed(LookAt(look))? else { break };
            if item.items != Some(2) {
                no_pair.get_or_insert(number);
            }
            count += 1;
        }
        Ok(Shape { items: Some(count), no_pair })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Shape, A::Error> {
        let look = self.look;
        if let Some(first) = pairs.next_key_seed(Text)? {
            let shape = pairs.next_value_seed(LookAt(look))?;
            match pairs.next_key_seed(Text)? {
                Some(second) => look.at_other_pairs(first, second, pairs)?,
                None => {
                    let form = form_of(&first);
                    if form.is_some() {
                        look.looked.mark(self.number);
                    }
                    if form == Some("$map") {
                        let first = [look.looked.no_pair, shape.no_pair].into_iter().flatten();
                        look.looked.no_pair = first.min();
                    }
                }
            }
        }
        Ok(Shape::default())
    }
}

impl Look<'_> {
    /// The pairs of a map behind its first one, from this key on.
    fn at_other_pairs<'de, A: MapAccess<'de>>(
        &mut self,
        first: Cow<'de, str>,
        mut key: Cow<'de, str>,
        mut pairs: A,
    ) -> Result<(), A::Error> {
        let outside = self.key_bytes;
        let mut seen = HashSet::from([first]);
        loop {
            let again = seen.replace(key);
            // A byte more for each place, and an eighth of them stay free.
            self.key_bytes = outside + seen.capacity() * 8 / 7 * (size_of::<Cow<'_, str>>() + 1);
            // What is wrong in the value comes first.
            pairs.next_value_seed(LookAt(self))?;
            if let Some(key) = again {
                return Err(A::Error::custom(format!("the key {:?} is there twice", shown(&key))));
            }
            match pairs.next_key_seed(Text)? {
                Some(next) => key = next,
                None => break,
            }
        }
        self.key_bytes = outside;
        Ok(())
    }
}
