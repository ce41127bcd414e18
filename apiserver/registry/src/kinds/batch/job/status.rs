//! Validation of a Job's status (upstream's `validateJobStatus`): other controllers than the Job's may write it, and
//! its terminal conditions are final. A rule applies only if a member that it reads has changed.

use super::indexes;
use crate::shared::validation::{Errors, Path, non_negative, present};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;
use std::collections::HashSet;

/// Every problem of a changed status.
pub(crate) fn validate(job: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("status");
    let (now, was) = (Job(job), Job(old));
    if let Some(status) = job.get("status") {
        for name in ["active", "succeeded", "failed", "ready", "terminating"] {
            non_negative(&mut errors, &path, status, name);
        }
    }
    uncounted(&mut errors, &path.child("uncountedTerminatedPods"), now);
    complete(&mut errors, &path, now, was);
    ends(&mut errors, &path, now, was);
    finished(&mut errors, &path, now, was);
    indexes(&mut errors, &path, now, was);
    pods(&mut errors, &path, now, was);
    criteria(&mut errors, &path.child("conditions"), now);
    for_good(&mut errors, &path, now, was);
    errors.into_list()
}

/// Reports whether the job has the condition with status `True`.
pub(super) fn condition(job: Ref<'_>, kind: &str) -> bool {
    has_condition(job, kind, "True")
}

fn has_condition(job: Ref<'_>, kind: &str, status: &str) -> bool {
    let conditions = job
        .get("status")
        .into_iter()
        .flat_map(|own| own.list("conditions"));
    conditions
        .into_iter()
        .any(|own| own.str("type") == kind && own.str("status") == status)
}

/// A job as its rules look at it.
#[derive(Clone, Copy)]
struct Job<'a>(Ref<'a>);

impl<'a> Job<'a> {
    fn is(self, condition_type: &str) -> bool {
        condition(self.0, condition_type)
    }

    fn is_finished(self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    fn status(self, name: &str) -> Option<Ref<'a>> {
        present(self.0.get("status")?, name)
    }

    fn spec(self, name: &str) -> Option<Ref<'a>> {
        present(self.0.get("spec")?, name)
    }

    fn count(self, name: &str) -> i64 {
        self.status(name).and_then(Ref::as_i64).unwrap_or_default()
    }

    fn text(self, name: &str) -> &'a str {
        self.status(name).and_then(Ref::as_str).unwrap_or_default()
    }

    fn time(self, name: &str) -> Option<jiff::Timestamp> {
        self.text(name).parse().ok()
    }

    fn completions(self) -> Option<i64> {
        self.spec("completions").and_then(Ref::as_i64)
    }

    fn is_indexed(self) -> bool {
        self.spec("completionMode").and_then(Ref::as_str) == Some("Indexed")
    }

    fn is_suspended(self) -> bool {
        self.spec("suspend").and_then(Ref::as_bool) == Some(true)
    }

    fn uncounted(self) -> usize {
        let pods = self.status("uncountedTerminatedPods");
        let all = ["succeeded", "failed"].map(|list| pods.map_or(0, |pods| pods.list(list).len()));
        all.iter().sum()
    }
}

/// Reports whether one of these members of the status has changed.
fn differ(now: Job<'_>, was: Job<'_>, names: &[&str]) -> bool {
    let text = |job: Job<'_>, name: &str| job.status(name).map(Ref::to_json);
    names.iter().any(|name| text(now, name) != text(was, name))
}

/// Reports whether one of these conditions has become true or ceased to be.
fn turned(now: Job<'_>, was: Job<'_>, conditions: &[&str]) -> bool {
    conditions.iter().any(|own| now.is(own) != was.is(own))
}

fn shown(value: Option<Ref<'_>>) -> Shown {
    Shown(value.map_or_else(|| "null".into(), Ref::to_json))
}

/// A pod ends once.
fn uncounted(errors: &mut Errors, path: &Path<'_>, now: Job<'_>) {
    let mut seen = HashSet::new();
    for list in ["succeeded", "failed"] {
        let at = path.child(list);
        let pods = now.status("uncountedTerminatedPods");
        let uids = pods
            .into_iter()
            .flat_map(|pods| pods.list(list))
            .filter_map(Ref::as_str);
        for (index, uid) in uids.enumerate() {
            if uid.is_empty() {
                errors.invalid(&at.index(index), uid, "must not be empty");
            } else if !seen.insert(uid) {
                errors.duplicate(&at.index(index), uid);
            }
        }
    }
}

/// A complete job has not failed, and says when it was done.
fn complete(errors: &mut Errors, path: &Path<'_>, now: Job<'_>, was: Job<'_>) {
    let (conditions, done) = (path.child("conditions"), path.child("completionTime"));
    if turned(now, was, &["Complete", "Failed"]) && now.is("Complete") && now.is("Failed") {
        errors.invalid_unshown(&conditions, "cannot set Complete=True and Failed=true conditions");
    }
    if turned(now, was, &["Complete", "FailureTarget"]) && now.is("Complete") && now.is("FailureTarget") {
        let detail = "cannot set Complete=True and FailureTarget=true conditions";
        errors.invalid_unshown(&conditions, detail);
    }
    let time = now.status("completionTime");
    if turned(now, was, &["Complete"]) || differ(now, was, &["completionTime"]) {
        match (time.is_some(), now.is("Complete")) {
            (true, false) => {
                let detail = "cannot set completionTime when there is no Complete=True condition";
                errors.invalid(&done, shown(time), detail);
            }
            (false, true) => errors.required(&done, "completionTime is required for Complete jobs"),
            (true, true) | (false, false) => {}
        }
    }
    if differ(now, was, &["startTime", "completionTime"])
        && let (Some(start), Some(end)) = (now.time("startTime"), now.time("completionTime"))
        && end < start
    {
        errors.invalid(&done, shown(time), "must be equal to or after `startTime`");
    }
}

/// An end is announced before it is there.
fn ends(errors: &mut Errors, path: &Path<'_>, now: Job<'_>, was: Job<'_>) {
    let conditions = path.child("conditions");
    let failing = turned(now, was, &["Failed"]) || differ(now, was, &["failedIndexes"]);
    if failing && now.is("Failed") && !now.is("FailureTarget") {
        let detail = "cannot set Failed=True condition without the FailureTarget=true condition";
        errors.invalid_unshown(&conditions, detail);
    }
    if turned(now, was, &["Complete", "SuccessCriteriaMet"])
        && now.is("Complete")
        && !now.is("SuccessCriteriaMet")
    {
        let detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        errors.invalid_unshown(&conditions, detail);
    }
}

/// Nothing is left of a finished job.
fn finished(errors: &mut Errors, path: &Path<'_>, now: Job<'_>, was: Job<'_>) {
    if !now.is_finished() {
        return;
    }
    let turned = !was.is_finished();
    if (turned || now.count("active") != was.count("active")) && now.count("active") > 0 {
        let detail = "active>0 is invalid for finished job";
        errors.invalid(&path.child("active"), now.count("active"), detail);
    }
    let nothing_to_do = now.is_suspended() && now.completions() == Some(0);
    if (turned || differ(now, was, &["startTime"])) && !nothing_to_do && now.status("startTime").is_none() {
        errors.required(&path.child("startTime"), "startTime is required for finished job");
    }
    if (turned || differ(now, was, &["uncountedTerminatedPods"])) && now.uncounted() > 0 {
        let value = shown(now.status("uncountedTerminatedPods"));
        let detail = "must be empty for finished job";
        errors.invalid(&path.child("uncountedTerminatedPods"), value, detail);
    }
}

/// Validates completed and failed indexes: only indexed jobs have them, in order and without repetition.
fn indexes(errors: &mut Errors, path: &Path<'_>, now: Job<'_>, was: Job<'_>) {
    let done = now.text("completedIndexes");
    let changed = differ(now, was, &["completedIndexes"]);
    let failed_changed = differ(now, was, &["failedIndexes"]);
    let failed = now.status("failedIndexes").and_then(Ref::as_str);
    let per_index = now.spec("backoffLimitPerIndex").is_some();
    if changed {
        readable(errors, path, now, "completedIndexes", done);
    }
    if let Some(failed) = failed.filter(|_| failed_changed && per_index) {
        readable(errors, path, now, "failedIndexes", failed);
    }
    if changed && !done.is_empty() && !now.is_indexed() {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(&path.child("completedIndexes"), done, detail);
    }
    let at = path.child("failedIndexes");
    if let Some(failed) = failed.filter(|_| failed_changed && !per_index) {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid(&at, failed, detail);
    }
    if let (true, Some(failed), Some(completions)) = (changed || failed_changed, failed, now.completions())
        && let Some(index) = indexes::common(done, failed, completions)
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.invalid(&at, failed, detail);
    }
}

fn readable(errors: &mut Errors, path: &Path<'_>, now: Job<'_>, name: &str, text: &str) {
    let parsed = now
        .completions()
        .map(|completions| indexes::count(text, completions));
    if let Some(Err(error)) = parsed {
        errors.invalid(&path.child(name), text, format!("error parsing {name}: {error}"));
    }
}

fn pods(errors: &mut Errors, path: &Path<'_>, now: Job<'_>, was: Job<'_>) {
    let ending = now.count("terminating");
    let changed = now.is_finished() != was.is_finished() || differ(now, was, &["terminating"]);
    if changed && now.is_finished() && ending > 0 {
        let detail = "terminating>0 is invalid for finished job";
        errors.invalid(&path.child("terminating"), ending, detail);
    }
    let ready = now.status("ready").and_then(Ref::as_i64);
    if let Some(ready) = ready.filter(|ready| *ready > now.count("active"))
        && differ(now, was, &["ready", "active"])
    {
        let detail = "cannot set more ready pods than active";
        errors.invalid(&path.child("ready"), ready, detail);
    }
}

/// Refuses `Failed` beside `SuccessCriteriaMet`, and `Complete` without it in a job with a success policy.
fn criteria(errors: &mut Errors, path: &Path<'_>, now: Job<'_>) {
    let met = now.is("SuccessCriteriaMet");
    for (condition, detail) in [
        (
            "Failed",
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        ),
        (
            "FailureTarget",
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
    ] {
        if met && now.is(condition) {
            errors.invalid_unshown(path, detail);
        }
    }
    if now.spec("successPolicy").is_some() && !met && now.is("Complete") {
        let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        errors.invalid_unshown(path, detail);
    }
}

/// Refuses changes of members that are final once they are set.
fn for_good(errors: &mut Errors, path: &Path<'_>, now: Job<'_>, was: Job<'_>) {
    let conditions = path.child("conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if was.is(kind) && !now.is(kind) {
            let detail = format!("cannot disable the terminal {kind}=True condition");
            errors.invalid_unshown(&conditions, &detail);
        }
    }
    counters(errors, path, now, was);
    times(errors, path, now, was);
    if was.is("SuccessCriteriaMet") && !now.is("SuccessCriteriaMet") {
        errors.invalid_unshown(
            &conditions,
            "cannot disable the SuccessCriteriaMet=True condition",
        );
    }
    if was.is("Complete") && !was.is("SuccessCriteriaMet") && now.is("SuccessCriteriaMet") {
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.invalid_unshown(&conditions, detail);
    }
}

/// Counters grow; an indexed job that is scaled down forgets successes.
fn counters(errors: &mut Errors, path: &Path<'_>, now: Job<'_>, was: Job<'_>) {
    let parallelism = now.spec("parallelism").and_then(Ref::as_i64);
    let elastic = now.is_indexed() && now.completions() == parallelism;
    for (name, may_shrink) in [("failed", false), ("succeeded", elastic)] {
        if !may_shrink && now.count(name) < was.count(name) {
            let detail = format!("cannot decrease the {name} counter");
            errors.invalid(&path.child(name), now.count(name), detail);
        }
    }
}

fn times(errors: &mut Errors, path: &Path<'_>, now: Job<'_>, was: Job<'_>) {
    let both = |name| now.status(name).is_some() && was.status(name).is_some();
    if both("completionTime") && differ(now, was, &["completionTime"]) {
        let value = shown(now.status("completionTime"));
        errors.invalid(&path.child("completionTime"), value, "field is immutable");
    }
    let resumes = was.is("Suspended") && has_condition(now.0, "Suspended", "False");
    let restarted = was.status("startTime").is_some() && differ(now, was, &["startTime"]);
    if restarted && !resumes && !now.is_suspended() {
        let value = shown(now.status("startTime"));
        let detail = "field is immutable for unsuspended job once set";
        errors.invalid(&path.child("startTime"), value, detail);
    }
}
