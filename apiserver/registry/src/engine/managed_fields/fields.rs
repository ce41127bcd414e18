//! The fields of an entry: as the text they are stored as, until a write has to calculate with them.

use machinery_schema::Exceeded;
use machinery_schema::apply::{FieldSet, Steps, edited};
use std::borrow::Cow;

/// A set of fields, or its text.
#[derive(Debug, Clone)]
pub(super) enum Fields {
    /// `FieldsV1`, as it came from storage.
    Text(String),
    Set(FieldSet),
}

/// Bytes of text that count as one step: about what an element takes.
const BYTES_PER_STEP: usize = 16;

impl Default for Fields {
    fn default() -> Self {
        Self::Set(FieldSet::default())
    }
}

impl Fields {
    /// The set; text that cannot be decoded has no fields.
    pub(super) fn set(&self) -> Cow<'_, FieldSet> {
        match self {
            Self::Text(text) => Cow::Owned(FieldSet::from_json(text).unwrap_or_default()),
            Self::Set(set) => Cow::Borrowed(set),
        }
    }

    /// Reads the text.
    ///
    /// # Errors
    /// Upstream's words on text that is no set.
    pub(super) fn check(&mut self) -> Result<(), String> {
        if let Self::Text(text) = self {
            let set = FieldSet::from_json(text)
                .map_err(|problem| format!("error decoding versioned set: error decoding set: {problem}"))?;
            *self = Self::Set(set);
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text == "{}",
            Self::Set(set) => set.is_empty(),
        }
    }

    /// Takes fields away, then adds some. Text stays text where its order allows that.
    ///
    /// # Errors
    /// It takes more steps than are left.
    pub(super) fn change(
        &mut self,
        steps: &Steps,
        gone: &[&FieldSet],
        added: &FieldSet,
    ) -> Result<(), Exceeded> {
        if let Self::Text(text) = self {
            steps.charge(1 + text.len() / BYTES_PER_STEP + added.size())?;
            if let Some(changed) = edited(text, gone, added) {
                *text = changed;
                return Ok(());
            }
        }
        let mut left = self.set().into_owned();
        for gone in gone {
            left = steps.difference(&left, gone)?;
        }
        steps.absorb(&mut left, added)?;
        *self = Self::Set(left);
        Ok(())
    }

    /// The text to store.
    pub(super) fn text(&self, free_form: bool) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Set(set) if free_form => Cow::Owned(set.to_json_by_text()),
            Self::Set(set) => Cow::Owned(set.to_json()),
        }
    }
}
