//! Selectable fields of one object, packed: every stored object has them beside its bytes.
//!
//! The names are those of the object's kind, so objects of one kind share one list. The values are one run of bytes in
//! the order of the names: each begins with a number, which is either twice its length, or one more than twice the place
//! of an earlier field with the same value (an event has each field of its object under two names).

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Values by path (`spec.nodeName`, `status.phase`), in the order of the paths.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Fields(Option<Packed>);

#[derive(Clone, PartialEq, Eq)]
struct Packed {
    names: Arc<Names>,
    values: Box<[u8]>,
}

/// Sorted, none twice.
type Names = Vec<Box<str>>;

/// Lists of names that a thread remembers; there are about as many as kinds with selectable fields.
const REMEMBERED: usize = 512;
/// An equal value is looked for among so many fields before.
const LOOK_BACK: usize = 64;

thread_local! {
    /// Names by their hash.
    static KNOWN: RefCell<HashMap<u64, Arc<Names>>> = RefCell::default();
}

impl Fields {
    /// The value of a field.
    pub fn get(&self, path: &str) -> Option<&str> {
        let packed = self.0.as_ref()?;
        let place = packed.names.binary_search_by(|own| own.as_ref().cmp(path)).ok()?;
        packed.value(place)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let packed = self.0.as_ref();
        packed.into_iter().flat_map(|packed| {
            let named = packed.names.iter().enumerate();
            named.map(|(place, name)| (&**name, packed.value(place).unwrap_or_default()))
        })
    }

    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |packed| packed.names.len())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Bytes that the values take.
    pub fn packed_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |packed| packed.values.len())
    }
}

impl Packed {
    fn value(&self, place: usize) -> Option<&str> {
        let mut rest = &*self.values;
        for _ in 0..place {
            rest = next(rest)?.1;
        }
        match next(rest)?.0 {
            Value::Own(bytes) => std::str::from_utf8(bytes).ok(),
            // Earlier, and itself no reference.
            Value::As(earlier) => self.value(earlier),
        }
    }
}

enum Value<'a> {
    Own(&'a [u8]),
    As(usize),
}

/// The first value, and what follows it.
fn next(bytes: &[u8]) -> Option<(Value<'_>, &[u8])> {
    let (mut number, mut at) = (0_usize, 0);
    loop {
        let byte = *bytes.get(at)?;
        number |= usize::from(byte & 0x7f) << (7 * at);
        at += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let rest = &bytes[at..];
    if number & 1 == 1 {
        return Some((Value::As(number >> 1), rest));
    }
    let (own, rest) = rest.split_at_checked(number >> 1)?;
    Some((Value::Own(own), rest))
}

fn put_number(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn pack(values: &[&str]) -> Box<[u8]> {
    let mut out = Vec::with_capacity(values.iter().map(|value| value.len() + 2).sum());
    for (place, value) in values.iter().enumerate() {
        let first = place.saturating_sub(LOOK_BACK);
        let equal = values[first..place].iter().position(|earlier| earlier == value);
        match equal {
            // The first of several equal values is no reference.
            Some(before) if !value.is_empty() => put_number(&mut out, 2 * (first + before) + 1),
            _ => {
                put_number(&mut out, 2 * value.len());
                out.extend_from_slice(value.as_bytes());
            }
        }
    }
    out.into()
}

/// The one list of these names that this thread knows.
fn shared(names: &[&str]) -> Arc<Names> {
    let mut hasher = DefaultHasher::new();
    names.hash(&mut hasher);
    let hash = hasher.finish();
    KNOWN.with_borrow_mut(|known| {
        let same = |own: &&Arc<Names>| own.iter().map(|name| &**name).eq(names.iter().copied());
        if let Some(own) = known.get(&hash).filter(same) {
            return Arc::clone(own);
        }
        if known.len() >= REMEMBERED {
            known.clear();
        }
        let own: Arc<Names> = Arc::new(names.iter().map(|name| (*name).into()).collect());
        known.insert(hash, Arc::clone(&own));
        own
    })
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for Fields {
    /// Fields in any order; of a path that comes twice, the last value counts.
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Self {
        let fields: Vec<(N, V)> = fields.into_iter().collect();
        let mut sorted: Vec<(&str, &str)> = fields
            .iter()
            .map(|(name, value)| (name.as_ref(), value.as_ref()))
            .collect();
        // The last of equal paths comes first, and stays.
        sorted.reverse();
        sorted.sort_by_key(|(name, _)| *name);
        sorted.dedup_by_key(|(name, _)| *name);
        if sorted.is_empty() {
            return Self(None);
        }
        let (names, values): (Vec<&str>, Vec<&str>) = sorted.into_iter().unzip();
        Self(Some(Packed {
            names: shared(&names),
            values: pack(&values),
        }))
    }
}

impl<N: AsRef<str>, V: AsRef<str>, const COUNT: usize> From<[(N, V); COUNT]> for Fields {
    fn from(fields: [(N, V); COUNT]) -> Self {
        fields.into_iter().collect()
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Asserts that a map of the same content answers the same.
    #[track_caller]
    fn check(fields: &[(String, String)]) {
        let map: BTreeMap<&str, &str> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
        let packed: Fields = fields.iter().map(|(name, value)| (name, value)).collect();
        assert_eq!(
            packed.iter().collect::<Vec<_>>(),
            map.iter()
                .map(|(name, value)| (*name, *value))
                .collect::<Vec<_>>()
        );
        for (name, value) in &map {
            assert_eq!(packed.get(name), Some(*value));
        }
        assert_eq!(packed.get("none"), None);
        assert_eq!(packed.len(), map.len());
        assert_eq!(packed, map.into_iter().collect());
    }

    #[test]
    fn fields_of_any_values_come_back() {
        let own = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            pairs.iter().map(pair).collect()
        };
        check(&[]);
        check(&own(&[("a", "")]));
        check(&own(&[("b", "x"), ("a", "x"), ("c", ""), ("d", ""), ("b", "ü")]));
        let long = "y".repeat(20_000);
        check(&own(&[("a", &long), ("b", "z"), ("c", &long), ("d", "z")]));
        let many: Vec<_> = (0..300)
            .map(|at| (format!("f{at:03}"), format!("v{}", at % 70)))
            .collect();
        check(&many);
    }

    #[test]
    fn fields_with_equal_values_take_them_once() {
        let value = "v".repeat(100);
        let fields: Fields = (0..10).map(|at| (at.to_string(), &value)).collect();
        assert!(fields.packed_bytes() < 120, "{} bytes", fields.packed_bytes());
    }

    #[test]
    fn fields_of_one_kind_share_their_names() {
        let one = Fields::from([("spec.nodeName", "a"), ("status.phase", "Running")]);
        let other = Fields::from([("status.phase", "Failed"), ("spec.nodeName", "b")]);
        let names = |fields: &Fields| Arc::as_ptr(&fields.0.as_ref().unwrap().names);
        assert_eq!(names(&one), names(&other));
    }

    #[test]
    fn fields_remember_a_bounded_number_of_kinds() {
        for at in 0..3 * REMEMBERED {
            drop(Fields::from([(at.to_string(), "")]));
        }
        assert!(KNOWN.with_borrow(HashMap::len) <= REMEMBERED);
    }
}
