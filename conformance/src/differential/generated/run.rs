//! Probes of a group, sent to one server.

use anyhow::{Context, Result};
use serde_json::Value;

use super::answer::{UNANSWERED, VARIES, compact};
use super::{Base, Group, Probe};
use crate::differential::compare::{self, Seen};
use crate::differential::mask::Mask;
use crate::differential::run::{Server, Side};

/// Attempts of an update whose object the server itself has changed meanwhile.
const CONFLICT_ATTEMPTS: usize = 4;

/// Compact answers to the compared probes of a group, in their order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answers(pub Vec<(String, Value)>);

/// Answers without the change, masked: those of the object as it is.
#[derive(Debug, Default)]
struct Bases {
    object: Option<Seen>,
    stored: Option<Seen>,
}

impl Bases {
    fn of(&self, base: Base) -> Option<&Seen> {
        match base {
            Base::None => None,
            Base::Object => self.object.as_ref(),
            Base::Stored => self.stored.as_ref(),
        }
    }
}

impl Server {
    /// Sends the probes of a group, in a namespace of its own; each so many `times`, and an answer that does not come out
    /// alike each time is [`VARIES`]. One that is recorded, by several `times`, and does not come is [`UNANSWERED`].
    ///
    /// # Errors
    /// The objects that the group requires are refused, or an answer that is not recorded does not come.
    pub(crate) async fn probe(&self, group: &Group, times: usize) -> Result<Answers> {
        let mut side = self.side(&group.case);
        self.prepare(&mut side, &group.case)
            .await
            .with_context(|| format!("preparing {}", group.case.id))?;
        let mut bases = Bases::default();
        let mut answers = Vec::new();
        for probe in &group.probes {
            let seen = match self.answer(&mut side, probe).await {
                Ok(seen) => seen,
                // After a panic kube-apiserver serves on.
                Err(_) if times > 1 && probe.step.compare && self.version().await.is_ok() => {
                    answers.push((probe.name.clone(), UNANSWERED.into()));
                    continue;
                }
                Err(problem) => return Err(problem.context(group.id(probe))),
            };
            if !probe.step.compare {
                bases.stored = Some(seen);
                continue;
            }
            let mut answer = compact(&seen, bases.of(probe.base));
            for _ in 1..times {
                let again = self.answer(&mut side, probe).await?;
                if compact(&again, bases.of(probe.base)) != answer {
                    answer = VARIES.into();
                }
            }
            answers.push((probe.name.clone(), answer));
            if probe.base == Base::Object && probe.edit.is_none() {
                bases.object = Some(seen);
            }
        }
        Ok(Answers(answers))
    }

    /// Sends one probe; one that creates keeps the stored object.
    async fn answer(&self, side: &mut Side<'_>, probe: &Probe) -> Result<Seen> {
        let anonymous = probe.step.user.as_deref() == Some("anonymous");
        for attempt in 1.. {
            let mut step = probe.step.clone();
            if let Some(mut body) = base(side, probe.base) {
                if let Some(edit) = &probe.edit {
                    edit.apply(&mut body);
                }
                step.body = Some(body);
            }
            let request = self.request(&side.variables, &step)?;
            let answer = side.client.send(request, anonymous).await?;
            if probe.base == Base::Stored && answer.status == 409 && attempt < CONFLICT_ATTEMPTS {
                self.read_again(side).await?;
                continue;
            }
            let body = compare::document(&self.facts, &answer)?;
            if !probe.step.compare {
                side.variables.set("stored", body.clone());
            }
            let mut mask = Mask::new(self.runtime.now());
            return Ok(compare::see(&answer, body, &mut mask, &probe.step.ignore));
        }
        unreachable!("the loop ends with an answer")
    }

    /// The stored object as it is now: controllers of the server write statuses.
    async fn read_again(&self, side: &mut Side<'_>) -> Result<()> {
        let get = serde_json::from_value(serde_json::json!({"request": "GET {item}"}))?;
        let request = self.request(&side.variables, &get)?;
        let answer = side.client.send(request, false).await?;
        if answer.status.is_success() {
            side.variables
                .set("stored", compare::document(&self.facts, &answer)?);
        }
        Ok(())
    }
}

fn base(side: &Side<'_>, base: Base) -> Option<Value> {
    let name = match base {
        Base::None => return None,
        Base::Object => "{object}",
        Base::Stored => "{stored}",
    };
    Some(side.variables.value(&name.into()))
}
