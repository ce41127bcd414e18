//! Reasons why a pod fits nowhere, in upstream's words.

use crate::framework::Rejection;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// A condition's message is cut at this length, as upstream cuts it.
pub const MESSAGE_LIMIT: usize = 1024;

/// Nodes by reason, and what rejected them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnosis {
    pub all_nodes: usize,
    reasons: BTreeMap<String, usize>,
    /// Shown instead of the reasons when the pod was rejected before any node was looked at.
    pub pre_filter_message: Option<String>,
    pub post_filter_message: Option<String>,
    /// The plugins that rejected, by name.
    pub plugins: BTreeSet<&'static str>,
}

impl Diagnosis {
    pub fn new(all_nodes: usize) -> Self {
        Self {
            all_nodes,
            ..Self::default()
        }
    }

    /// `count` nodes were rejected this way.
    pub fn add(&mut self, rejection: &Rejection, count: usize) {
        for reason in &rejection.reasons {
            *self.reasons.entry(reason.clone().into_owned()).or_default() += count;
        }
    }

    pub fn add_reason(&mut self, reason: &str, count: usize) {
        *self.reasons.entry(reason.to_owned()).or_default() += count;
    }

    /// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable. preemption: …`
    pub fn message(&self) -> String {
        let mut out = format!("0/{} nodes are available:", self.all_nodes);
        match &self.pre_filter_message {
            Some(message) => out.push_str(&format!(" {message}.")),
            None if self.reasons.is_empty() => {}
            None => {
                let mut counted: Vec<String> = self
                    .reasons
                    .iter()
                    .map(|(reason, count)| format!("{count} {reason}"))
                    .collect();
                counted.sort();
                out.push_str(&format!(" {}.", counted.join(", ")));
            }
        }
        if let Some(message) = &self.post_filter_message {
            out.push(' ');
            out.push_str(message);
        }
        out
    }
}

/// Cuts a message for an event, ending in ` ...` as upstream does.
pub fn truncated(message: &str) -> String {
    if message.len() <= MESSAGE_LIMIT {
        return message.to_owned();
    }
    let suffix = " ...";
    let end = message.floor_char_boundary(MESSAGE_LIMIT - suffix.len());
    format!("{}{suffix}", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_and_sorted_as_text() {
        let mut diagnosis = Diagnosis::new(13);
        diagnosis.add(&Rejection::unresolvable("node(s) had untolerated taint(s)"), 2);
        diagnosis.add(&Rejection::unschedulable("Insufficient cpu"), 10);
        diagnosis.add(&Rejection::unschedulable("Too many pods"), 1);
        diagnosis.post_filter_message = Some("preemption: x".to_owned());
        assert_eq!(
            diagnosis.message(),
            "0/13 nodes are available: 1 Too many pods, 10 Insufficient cpu, \
             2 node(s) had untolerated taint(s). preemption: x"
        );
    }
}
