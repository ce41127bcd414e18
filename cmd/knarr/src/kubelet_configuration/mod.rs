//! Files of upstream's `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`) for the node agent, with drop-ins.
//!
//! A document is decoded strictly ([`decoding`]), joined with its drop-ins ([`files`]), checked by upstream's rules ([`validation`]),
//! and becomes words of the command line ([`settings`]), before those that were given: flags win over the file, and the file over
//! defaults. Each field is a row of [`fields::FIELDS`], which says how it is honoured; a value that is not is refused by name.
//!
//! Never: a setting that is read and has no effect.

mod decoding;
mod document;
mod fields;
mod files;
mod settings;
#[cfg(test)]
mod tests;
mod validation;

pub(crate) use document::kept_values;
pub(crate) use files::{KubeletConfigurationError, is_one, words};

/// The group and version of the document.
const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// Its kind.
const KIND: &str = "KubeletConfiguration";
