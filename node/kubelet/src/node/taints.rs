//! Taints that a node registers itself with (`--register-with-taints`).

use k8s_openapi::api::core::v1::Taint;
use machinery_meta::syntax::{label_value, qualified_name};
use std::str::FromStr;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The text is no taint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid taint spec: {text}, {why}")]
pub struct TaintError {
    text: String,
    why: String,
}

/// `key=value:effect`, or `key:effect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrationTaint {
    key: String,
    value: String,
    effect: &'static str,
}

impl RegistrationTaint {
    pub(crate) fn to_taint(&self) -> Taint {
        Taint {
            key: self.key.clone(),
            value: Some(self.value.clone()).filter(|value| !value.is_empty()),
            effect: self.effect.to_owned(),
            time_added: None,
        }
    }
}

impl FromStr for RegistrationTaint {
    type Err = TaintError;

    fn from_str(text: &str) -> Result<Self, TaintError> {
        let wrong = |why: &str| TaintError {
            text: text.to_owned(),
            why: why.to_owned(),
        };
        let (left, effect) = text.split_once(':').ok_or_else(|| wrong("it has no effect"))?;
        let effect = EFFECTS.into_iter().find(|own| *own == effect);
        let effect = effect.ok_or_else(|| wrong("unsupported taint effect"))?;
        let (key, value) = left.split_once('=').unwrap_or((left, ""));
        let problems = qualified_name(key).into_iter().chain(label_value(value));
        let problems: Vec<String> = problems.map(|problem| problem.to_string()).collect();
        if !problems.is_empty() {
            return Err(wrong(&problems.join("; ")));
        }
        Ok(Self {
            key: key.to_owned(),
            value: value.to_owned(),
            effect,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_are_read_as_the_kubelet_reads_them() {
        let read = |text: &str| text.parse::<RegistrationTaint>().map(|own| own.to_taint());
        let full = read("example.com/gpu=yes:NoSchedule").unwrap();
        assert_eq!(
            (full.key.as_str(), full.value.as_deref()),
            ("example.com/gpu", Some("yes"))
        );
        assert_eq!(full.effect, "NoSchedule");
        let short = read("gpu:NoExecute").unwrap();
        assert_eq!((short.value, short.effect.as_str()), (None, "NoExecute"));
        for wrong in [
            "gpu",
            "gpu=yes",
            "gpu=yes:Never",
            "=yes:NoSchedule",
            "a b:NoSchedule",
            "gpu=a=b:NoSchedule",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
