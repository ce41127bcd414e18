//! JSON of objects, read as Go's decoder reads it: a null is the zero value of what stands there.
//!
//! Go writes an empty list without `omitempty` as `null` (`devices.requests` of a ResourceClaim with `spec: {}`), and upstream's components read
//! it as an empty one. Lists, maps, structs and scalars of a view do so by the decoder, not by each field. Parts that a view
//! reads as any value (`serde_json::Value`, `RawValue`) keep their nulls.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use std::fmt;
use std::iter::Empty;

/// Decodes a text.
///
/// # Errors
/// It is no JSON, or that of another type.
pub fn from_slice<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = T::deserialize(NullIsZero(&mut reader))?;
    reader.end()?;
    Ok(value)
}

/// Decodes a text.
///
/// # Errors
/// It is no JSON, or that of another type.
pub fn from_str<'de, T: Deserialize<'de>>(json: &'de str) -> Result<T, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let value = T::deserialize(NullIsZero(&mut reader))?;
    reader.end()?;
    Ok(value)
}

/// Beginning of the names by which `serde_json` recognizes its own types, such as `RawValue`, which read the text themselves.
const OWN_TYPES: &str = "$serde_json::private::";

/// A deserializer whose nulls are zero values.
struct NullIsZero<D>(D);

/// A type that is read, and its zero value.
trait Read<'de>: Sized {
    fn read<D: Deserializer<'de>, V: Visitor<'de>>(
        self,
        deserializer: D,
        visitor: V,
    ) -> Result<V::Value, D::Error>;

    fn zero<V: Visitor<'de>, E: serde::de::Error>(self, visitor: V) -> Result<V::Value, E>;
}

/// Visits null, or what is there.
struct OrZero<K, V>(K, V);

impl<'de, K: Read<'de>, V: Visitor<'de>> Visitor<'de> for OrZero<K, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.expecting(f)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.zero(self.1)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.zero(self.1)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.read(deserializer, self.1)
    }
}

/// A scalar by the method that reads it, the visitor's method, and the zero.
macro_rules! scalars {
    ($($name:ident $read:ident $visit:ident $zero:expr;)*) => { $(
        struct $name;

        impl<'de> Read<'de> for $name {
            fn read<D: Deserializer<'de>, V: Visitor<'de>>(self, deserializer: D, visitor: V) -> Result<V::Value, D::Error> {
                deserializer.$read(visitor)
            }

            fn zero<V: Visitor<'de>, E: serde::de::Error>(self, visitor: V) -> Result<V::Value, E> {
                visitor.$visit($zero)
            }
        }
    )* };
}

scalars! {
    Bool deserialize_bool visit_bool false;
    I8 deserialize_i8 visit_i64 0;
    I16 deserialize_i16 visit_i64 0;
    I32 deserialize_i32 visit_i64 0;
    I64 deserialize_i64 visit_i64 0;
    U8 deserialize_u8 visit_u64 0;
    U16 deserialize_u16 visit_u64 0;
    U32 deserialize_u32 visit_u64 0;
    U64 deserialize_u64 visit_u64 0;
    F32 deserialize_f32 visit_f64 0.0;
    F64 deserialize_f64 visit_f64 0.0;
    Str deserialize_str visit_borrowed_str "";
    Text deserialize_string visit_borrowed_str "";
}

struct Seq;

impl<'de> Read<'de> for Seq {
    fn read<D: Deserializer<'de>, V: Visitor<'de>>(
        self,
        deserializer: D,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        deserializer.deserialize_seq(Inside(visitor))
    }

    fn zero<V: Visitor<'de>, E: serde::de::Error>(self, visitor: V) -> Result<V::Value, E> {
        let nothing: SeqDeserializer<Empty<()>, E> = SeqDeserializer::new(std::iter::empty());
        visitor.visit_seq(nothing)
    }
}

/// An empty map.
fn no_members<'de, V: Visitor<'de>, E: serde::de::Error>(visitor: V) -> Result<V::Value, E> {
    let nothing: MapDeserializer<'de, Empty<((), ())>, E> = MapDeserializer::new(std::iter::empty());
    visitor.visit_map(nothing)
}

struct Map;

impl<'de> Read<'de> for Map {
    fn read<D: Deserializer<'de>, V: Visitor<'de>>(
        self,
        deserializer: D,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        deserializer.deserialize_map(Inside(visitor))
    }

    fn zero<V: Visitor<'de>, E: serde::de::Error>(self, visitor: V) -> Result<V::Value, E> {
        no_members(visitor)
    }
}

struct Struct(&'static str, &'static [&'static str]);

impl<'de> Read<'de> for Struct {
    fn read<D: Deserializer<'de>, V: Visitor<'de>>(
        self,
        deserializer: D,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        deserializer.deserialize_struct(self.0, self.1, Inside(visitor))
    }

    fn zero<V: Visitor<'de>, E: serde::de::Error>(self, visitor: V) -> Result<V::Value, E> {
        no_members(visitor)
    }
}

struct Enum(&'static str, &'static [&'static str]);

impl<'de> Read<'de> for Enum {
    fn read<D: Deserializer<'de>, V: Visitor<'de>>(
        self,
        deserializer: D,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        deserializer.deserialize_enum(self.0, self.1, visitor)
    }

    /// Go's enums are texts.
    fn zero<V: Visitor<'de>, E: serde::de::Error>(self, visitor: V) -> Result<V::Value, E> {
        let nothing: serde::de::value::StrDeserializer<'static, E> = "".into_deserializer();
        visitor.visit_enum(nothing)
    }
}

macro_rules! by_kind {
    ($($method:ident $kind:ident;)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.deserialize_option(OrZero($kind, visitor))
        }
    )* };
}

macro_rules! as_it_is {
    ($($method:ident)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(visitor)
        }
    )* };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for NullIsZero<D> {
    type Error = D::Error;

    by_kind! {
        deserialize_bool Bool;
        deserialize_i8 I8;
        deserialize_i16 I16;
        deserialize_i32 I32;
        deserialize_i64 I64;
        deserialize_u8 U8;
        deserialize_u16 U16;
        deserialize_u32 U32;
        deserialize_u64 U64;
        deserialize_f32 F32;
        deserialize_f64 F64;
        deserialize_str Str;
        deserialize_string Text;
        deserialize_seq Seq;
        deserialize_map Map;
    }

    as_it_is! {
        deserialize_any deserialize_ignored_any deserialize_identifier deserialize_unit deserialize_char
        deserialize_bytes deserialize_byte_buf
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(Inside(visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(OrZero(Struct(name, fields), visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(OrZero(Enum(name, variants), visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        match name.starts_with(OWN_TYPES) {
            true => self.0.deserialize_newtype_struct(name, visitor),
            false => self.0.deserialize_newtype_struct(name, Inside(visitor)),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple(len, Inside(visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple_struct(name, len, Inside(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

/// A visitor, an access or a seed, what lies inside of which is read so as well.
struct Inside<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for Inside<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(NullIsZero(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(NullIsZero(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Inside(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Inside(members))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(variant)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Inside<A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        self.0.next_element_seed(Inside(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Inside<A> {
    type Error = A::Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.0.next_value_seed(Inside(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Inside<T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T::Value, D::Error> {
        self.0.deserialize(NullIsZero(deserializer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::value::RawValue;
    use serde_json::{Value, json};
    use std::borrow::Cow;
    use std::collections::BTreeMap;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Every {
        list: Vec<Every>,
        boxed: Box<[Box<str>]>,
        map: BTreeMap<Box<str>, Vec<u8>>,
        inner: Option<Box<Every>>,
        part: Part,
        text: String,
        yes: bool,
        int: i32,
        count: u64,
        share: f64,
        wrapped: Wrapped,
        choice: Choice,
        any: Value,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Part {
        numbers: Vec<i64>,
        pair: Option<(u8, Vec<u8>)>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    struct Wrapped(Vec<u16>);

    #[derive(Debug, Default, PartialEq, Deserialize)]
    enum Choice {
        One,
        #[default]
        #[serde(other)]
        Other,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Borrowing<'a> {
        #[serde(borrow)]
        text: Cow<'a, str>,
        slice: &'a str,
    }

    const FULL: &str = r#"{"list":[{"int":1}],"boxed":["a"],"map":{"k":[1]},"inner":{"text":"x"},
        "part":{"numbers":[1],"pair":[1,[2]]},"text":"t","yes":true,"int":-1,"count":1,"share":0.5,
        "wrapped":[1],"choice":"One","any":{"a":null}}"#;

    #[test]
    fn null_member_is_read_as_an_absent_one() {
        let full: Every = from_str(FULL).unwrap();
        assert_eq!(
            full,
            serde_json::from_str(FULL).unwrap(),
            "what is no null is read as ever"
        );
        let written: Value = serde_json::from_str(FULL).unwrap();
        for name in written.as_object().unwrap().keys() {
            let (mut null, mut absent) = (written.clone(), written.clone());
            null[name] = Value::Null;
            absent.as_object_mut().unwrap().remove(name);
            let (null, absent) = (null.to_string(), absent.to_string());
            let absent: Every = from_str(&absent).unwrap();
            assert_eq!(from_str::<Every>(&null).unwrap(), absent, "{name}");
            assert_eq!(from_slice::<Every>(null.as_bytes()).unwrap(), absent, "{name}");
            assert_ne!(full, absent, "{name}");
        }
        assert_eq!(from_str::<Every>("null").unwrap(), Every::default());
    }

    #[test]
    fn null_inside_of_lists_and_maps_is_a_zero_value() {
        let text = r#"{"list":[null,{"part":null}],"boxed":[null],"map":{"k":null,"l":[null]},"part":{"numbers":null,"pair":[1,null]}}"#;
        let read: Every = from_str(text).unwrap();
        assert_eq!(read.list, [Every::default(), Every::default()]);
        assert_eq!(*read.boxed, ["".into()]);
        assert_eq!(
            read.map,
            BTreeMap::from([("k".into(), vec![]), ("l".into(), vec![0])])
        );
        assert_eq!(read.part.pair, Some((1, vec![])));
    }

    #[test]
    fn null_text_that_is_borrowed_is_empty() {
        let text = r#"{"text":"t","slice":"s"}"#;
        let read: Borrowing<'_> = from_str(text).unwrap();
        assert!(matches!(read.text, Cow::Borrowed("t")) && read.slice == "s");
        let read: Borrowing<'_> = from_str(r#"{"text":null,"slice":null}"#).unwrap();
        assert_eq!(read, Borrowing::default());
    }

    #[test]
    fn null_in_any_value_stays() {
        assert_eq!(
            from_str::<Value>(r#"{"a":[null]}"#).unwrap(),
            json!({"a": [null]})
        );
        let raw: BTreeMap<String, &RawValue> = from_str(r#"{"a": {"b":null} }"#).unwrap();
        assert_eq!(raw["a"].get(), r#"{"b":null}"#);
    }

    #[test]
    fn text_of_another_type_is_refused() {
        for wrong in [
            r#"{"list":{}}"#,
            r#"{"int":"1"}"#,
            r#"{"text":1}"#,
            r#"{"part":[}"#,
            "{} x",
            "",
        ] {
            assert!(from_str::<Every>(wrong).is_err(), "{wrong}");
            assert!(serde_json::from_str::<Every>(wrong).is_err(), "{wrong}");
        }
    }
}
