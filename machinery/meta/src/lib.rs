//! Plain values every component shares.
//!
//! Nothing here waits, reads a clock or opens a file; nothing can go wrong around these types.
//! Names of kinds and keys ([`names`], [`key`]), where in an object something is wrong ([`field`]),
//! a request's user ([`user`]) and what admission decides about ([`Operation`]), which objects are meant ([`predicate`] of [`label_selector`] and [`field_selector`]), amounts
//! ([`quantity`]), name syntax ([`syntax`]), times and durations ([`go_time`], [`go_duration`]), the small parsed header beside an encoded object ([`header`]) and its packed [`fields`], objects as they are
//! stored ([`shared`]), the words for connections that fail ([`dial`]), what release this is ([`version`]) and the pages on which a component says so ([`debug_page`]).

pub mod debug_page;
pub mod dial;
pub mod error_chain;
pub mod field;
pub mod field_selector;
pub mod fields;
pub mod go_duration;
pub mod go_text;
pub mod go_time;
pub mod header;
pub mod key;
pub mod label_selector;
pub mod names;
mod operation;
mod packed_texts;
pub mod predicate;
pub mod quantity;
pub mod reader;
pub mod shared;
pub mod syntax;
mod text_map;
mod text_set;
pub mod user;
pub mod version;
pub mod walked_path;
mod word;

pub use field::{FieldError, FieldErrorKind, FieldPath};
pub use field_selector::FieldSelector;
pub use fields::Fields;
pub use header::{ObjectHeader, OwnerRef};
pub use key::{ObjectKey, Revision, Uid};
pub use label_selector::LabelSelector;
pub use names::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
pub use operation::Operation;
pub use predicate::Predicate;
pub use quantity::Quantity;
pub use shared::{SharedEvent, SharedEvents, SharedObject};
pub use text_map::TextMap;
pub use text_set::TextSet;
pub use user::UserInfo;
pub use word::Word;
