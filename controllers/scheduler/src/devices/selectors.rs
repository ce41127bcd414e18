//! Compiled selectors, kept for the attempts to come.

use machinery_cel::DeviceSelector;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of expressions whose programs are kept: all of them are forgotten where one more is too many.
const MAX_BYTES: usize = 256 << 10;
/// Steps that a byte of an expression takes to be compiled.
const STEPS_OF_A_BYTE: usize = 16;

/// A compiled selector, or why there is none.
pub(crate) type Compiled = Arc<Result<DeviceSelector, String>>;

/// Selectors by their text.
#[derive(Debug, Default)]
pub(crate) struct Selectors(RefCell<Kept>);

#[derive(Debug, Default)]
struct Kept {
    compiled: HashMap<Box<str>, Compiled>,
    bytes: usize,
}

impl Selectors {
    /// The selector of the text, and the steps that it took.
    pub(crate) fn compiled(&self, text: &str) -> (Compiled, usize) {
        let mut kept = self.0.borrow_mut();
        if let Some(known) = kept.compiled.get(text) {
            return (Arc::clone(known), 1);
        }
        let compiled = DeviceSelector::compile(text, true).map_err(|problem| problem.to_string());
        let compiled = Arc::new(compiled);
        if kept.bytes.saturating_add(text.len()) > MAX_BYTES {
            *kept = Kept::default();
        }
        kept.bytes += text.len();
        kept.compiled.insert(text.into(), Arc::clone(&compiled));
        (compiled, STEPS_OF_A_BYTE * text.len())
    }
}
