//! The result of a run, in lines for people.

use std::fmt;

use super::known::{self, Judgement, Known};
use super::outcome::Outcome;

/// The result of a run against the list of known differences.
#[derive(Debug)]
pub struct Report {
    outcomes: Vec<Outcome>,
    known: Vec<Known>,
    judgement: Judgement,
    /// Cases that were left out: id and reason.
    not_replayed: Vec<(String, String)>,
    /// Generated cases to which no answers are recorded yet.
    unrecorded: usize,
}

impl Report {
    /// Judges outcomes: of all cases in a `whole` run.
    #[must_use]
    pub fn new(
        outcomes: Vec<Outcome>,
        known: Vec<Known>,
        not_replayed: Vec<(String, String)>,
        whole: bool,
    ) -> Self {
        Self {
            judgement: known::judge(&outcomes, &known, whole),
            outcomes,
            known,
            not_replayed,
            unrecorded: 0,
        }
    }

    /// The report with the number of generated cases that wait for their recording.
    #[must_use]
    pub fn with_unrecorded(self, unrecorded: usize) -> Self {
        Self { unrecorded, ..self }
    }

    /// Reports whether all answers are upstream's, or differ as the list says and nowhere less.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.judgement.failed == 0 && self.judgement.stale.is_empty()
    }

    /// Failing cases, each with its unexplained differences.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        self.outcomes
            .iter()
            .filter_map(|outcome| failure(outcome, &self.known))
    }

    /// All but the failures: entries that are stale, cases left out, counts.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut lines = Vec::new();
        for entry in &self.judgement.stale {
            lines.push(format!(
                "{} differs no more in {}: remove it from known_differences.tsv",
                entry.case, entry.line
            ));
        }
        for (id, reason) in &self.not_replayed {
            lines.push(format!("{id} is not replayed: {reason}"));
        }
        if self.unrecorded > 0 {
            lines.push(format!(
                "{} generated cases are not recorded and were not sent",
                self.unrecorded
            ));
        }
        let Judgement {
            passed,
            known,
            failed,
            ..
        } = self.judgement;
        lines.push(format!(
            "{} cases: {passed} passed, {known} differ only as known, {failed} failed; {} not replayed",
            self.outcomes.len() + self.not_replayed.len(),
            self.not_replayed.len()
        ));
        lines.join("\n")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in self.failures() {
            writeln!(f, "{failure}")?;
        }
        f.write_str(&self.summary())
    }
}

/// The case with the differences that no entry explains, each below its step; nothing where all are explained.
#[must_use]
pub fn failure(outcome: &Outcome, known: &[Known]) -> Option<String> {
    let unexplained: Vec<&String> = known::unexplained(outcome, known).collect();
    if unexplained.is_empty() {
        return None;
    }
    let mut text = outcome.id.clone();
    let mut step = None;
    for line in &outcome.differences {
        if known::is_step(line) {
            step = Some(line);
        } else if unexplained.iter().any(|own| std::ptr::eq(*own, line)) {
            for line in step.take().into_iter().chain([line]) {
                text.push_str("\n  ");
                text.push_str(line);
            }
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_shows_case_request_and_what_is_not_known() {
        let outcome = |id: &str, lines: &[&str]| Outcome {
            id: id.into(),
            differences: lines.iter().map(|line| (*line).into()).collect(),
        };
        let known = Known {
            case: "core/a:*".into(),
            line: "body.known: *".into(),
            reason: "a reason".into(),
        };
        let differences = [
            "step 1: POST /a",
            "    body.known: upstream 1, ours 2",
            "step 2: GET /a",
            "    body.known: upstream 1, ours 2",
            "    body.x: upstream 3, ours 4",
        ];
        let outcomes = vec![
            outcome("core/a:fails", &differences),
            outcome("core/a:known", &differences[..2]),
            outcome("core/a:passes", &[]),
        ];
        let left_out = vec![("core/a:live".to_owned(), "it asks the clock".to_owned())];
        let report = Report::new(outcomes, vec![known], left_out, true).with_unrecorded(7);
        assert!(!report.is_good());
        assert_eq!(
            report.to_string(),
            "core/a:fails\n  step 2: GET /a\n      body.x: upstream 3, ours 4\n\
             core/a:live is not replayed: it asks the clock\n\
             7 generated cases are not recorded and were not sent\n\
             4 cases: 1 passed, 1 differ only as known, 1 failed; 1 not replayed"
        );
    }
}
