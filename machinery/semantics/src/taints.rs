//! Taints of nodes and the tolerations of pods.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Pods that do not tolerate it are not placed here.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// Pods that do not tolerate it are not placed here, and leave.
pub const NO_EXECUTE: &str = "NoExecute";

/// Members of a taint; the value is mostly empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaintTerms<'a> {
    /// Name of the taint.
    pub key: &'a str,
    /// Its value.
    pub value: &'a str,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: &'a str,
}

/// Members of a toleration, empty where it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TolerationTerms<'a> {
    /// Key of the taints; empty for all keys.
    pub key: &'a str,
    /// `Equal`, `Exists`, `Gt` or `Lt`; empty for `Equal`.
    pub operator: &'a str,
    /// Value that the operator compares with the taint's.
    pub value: &'a str,
    /// Effect of the taints; empty for all effects.
    pub effect: &'a str,
}

impl TolerationTerms<'_> {
    /// Reports whether the toleration accepts a taint (upstream's `ToleratesTaint`). An empty key with `Exists` accepts all, an
    /// empty effect every effect.
    pub fn accept(self, taint: TaintTerms<'_>) -> bool {
        if !self.effect.is_empty() && self.effect != taint.effect {
            return false;
        }
        if !self.key.is_empty() && self.key != taint.key {
            return false;
        }
        match self.operator {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            "Gt" => compares(taint.value, self.value, |taint, toleration| taint > toleration),
            "Lt" => compares(taint.value, self.value, |taint, toleration| taint < toleration),
            _ => false,
        }
    }
}

/// Reports whether a toleration accepts a taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let terms = TolerationTerms {
        key: toleration.key.as_deref().unwrap_or(""),
        operator: toleration.operator.as_deref().unwrap_or(""),
        value: toleration.value.as_deref().unwrap_or(""),
        effect: toleration.effect.as_deref().unwrap_or(""),
    };
    terms.accept(TaintTerms {
        key: &taint.key,
        value: taint.value.as_deref().unwrap_or(""),
        effect: &taint.effect,
    })
}

fn compares(taint: &str, toleration: &str, rule: impl Fn(i64, i64) -> bool) -> bool {
    taint
        .parse()
        .is_ok_and(|taint| toleration.parse().is_ok_and(|toleration| rule(taint, toleration)))
}

/// Reports whether any of the tolerations accepts the taint.
pub fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// Time for which a pod tolerates the `NoExecute` taints of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TolerationWindow {
    /// Without a limit.
    Unlimited,
    /// Seconds since the taint was added.
    Seconds(i64),
    /// No time: the pod is evicted at once.
    None,
}

/// Returns the shortest window that the tolerations grant over all `NoExecute` taints.
pub fn toleration_window(taints: &[Taint], tolerations: &[Toleration]) -> TolerationWindow {
    let mut window = TolerationWindow::Unlimited;
    for taint in taints.iter().filter(|taint| taint.effect == NO_EXECUTE) {
        let mut used = tolerations
            .iter()
            .filter(|toleration| tolerates(toleration, taint))
            .peekable();
        if used.peek().is_none() {
            return TolerationWindow::None;
        }
        for seconds in used.filter_map(|toleration| toleration.toleration_seconds) {
            window = match window {
                _ if seconds <= 0 => TolerationWindow::None,
                TolerationWindow::None => TolerationWindow::None,
                TolerationWindow::Seconds(shorter) if shorter <= seconds => {
                    TolerationWindow::Seconds(shorter)
                }
                _ => TolerationWindow::Seconds(seconds),
            };
        }
    }
    window
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint {
            key: key.into(),
            value: Some(value.into()),
            effect: effect.into(),
            time_added: None,
        }
    }

    fn toleration(key: &str, operator: &str, value: &str, effect: &str, seconds: Option<i64>) -> Toleration {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Toleration {
            key: some(key),
            operator: some(operator),
            value: some(value),
            effect: some(effect),
            toleration_seconds: seconds,
        }
    }

    #[test]
    fn tolerations() {
        let taint = taint("k", "v", NO_SCHEDULE);
        for (own, expected) in [
            (toleration("k", "", "v", "", None), true),
            (toleration("k", "Equal", "w", "", None), false),
            (toleration("k", "Exists", "", NO_EXECUTE, None), false),
            (toleration("", "Exists", "", "", None), true),
            (toleration("k", "Exists", "", NO_SCHEDULE, None), true),
            (toleration("other", "Exists", "", "", None), false),
        ] {
            assert_eq!(tolerates(&own, &taint), expected, "{own:?}");
        }
    }

    #[test]
    fn toleration_shortest_window_counts() {
        let taints = [taint("a", "", NO_EXECUTE), taint("b", "", NO_EXECUTE)];
        let exists = |key, seconds| toleration(key, "Exists", "", NO_EXECUTE, seconds);
        assert_eq!(
            toleration_window(&taints, &[exists("a", None)]),
            TolerationWindow::None
        );
        assert_eq!(
            toleration_window(&taints, &[exists("a", None), exists("b", None)]),
            TolerationWindow::Unlimited
        );
        assert_eq!(
            toleration_window(&taints, &[exists("a", Some(9)), exists("b", Some(300))]),
            TolerationWindow::Seconds(9)
        );
        assert_eq!(
            toleration_window(&taints, &[exists("a", Some(0)), exists("b", Some(300))]),
            TolerationWindow::None
        );
    }
}
