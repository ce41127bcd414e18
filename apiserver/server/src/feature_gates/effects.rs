//! Gates whose other state a component takes (`effects.tsv`).

use std::fmt;

const EFFECTS: &str = include_str!("effects.tsv");

/// A component that has feature gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateComponent {
    /// `knarr server`: API server, scheduler and controllers.
    Server,
    /// `knarr agent`: kubelet, proxy and DNS.
    Agent,
}

impl fmt::Display for GateComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "this server",
            Self::Agent => "this agent",
        })
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Effect<'a> {
    pub(super) gate: &'a str,
    /// The server's and the agent's: `honoured`, `elsewhere`, `same`, or `-`.
    pub(super) of: [&'a str; 2],
    pub(super) reason: &'a str,
}

pub(super) fn rows() -> impl Iterator<Item = Effect<'static>> {
    let lines = EFFECTS.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let mut parts = line.split('\t');
        let mut next = || parts.next().unwrap_or_default();
        Effect {
            gate: next(),
            of: [next(), next()],
            reason: next(),
        }
    })
}

/// Reports whether a component takes the state of a gate that is not its default.
pub(super) fn takes(gate: &str, component: GateComponent) -> bool {
    let column = match component {
        GateComponent::Server => 0,
        GateComponent::Agent => 1,
    };
    rows().any(|row| row.gate == gate && row.of[column] != "-")
}
