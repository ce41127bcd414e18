//! Validation of CronJobs.

use crate::kinds::batch::job::validation as job;
use crate::shared::validation::{Errors, Path, non_negative, present};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;
use machinery_semantics::cron_schedule::{Schedule, time_zone};

/// The names of its jobs are eleven characters longer, and labels of their pods.
const MAX_NAME: usize = 52;

/// Every problem of a new CronJob.
pub fn validate(cron: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    validate_spec(&mut errors, cron, None);
    let name = cron.str_at(&["metadata", "name"]);
    if name.len() > MAX_NAME {
        let detail = format!("must be no more than {MAX_NAME} characters");
        errors.invalid(&Path::of("metadata").child("name"), name, detail);
    }
    errors.into_list()
}

/// Every problem of a changed CronJob; names from before there was a limit stay.
pub fn validate_update(cron: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    validate_spec(&mut errors, cron, Some(old));
    errors.into_list()
}

fn validate_spec(errors: &mut Errors, cron: Ref<'_>, old: Option<Ref<'_>>) {
    let Some(spec) = cron.get("spec") else { return };
    let path = Path::of("spec");
    validate_schedule(errors, &path.child("schedule"), spec, old);
    non_negative(errors, &path, spec, "startingDeadlineSeconds");
    let zone = present(spec, "timeZone").and_then(Ref::as_str);
    let kept = old.is_some_and(|old| old.at(&["spec", "timeZone"]).and_then(Ref::as_str) == zone);
    if let Some(zone) = zone.filter(|_| !kept) {
        validate_time_zone(errors, &path.child("timeZone"), zone);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    match spec.str("concurrencyPolicy") {
        "" => errors.required(&path.child("concurrencyPolicy"), ""),
        policy if policies.contains(&policy) => {}
        policy => errors.not_supported(&path.child("concurrencyPolicy"), policy, &policies),
    }
    if let Some(template) = spec.at(&["jobTemplate", "spec"]) {
        let at = path.child("jobTemplate");
        let at = at.child("spec");
        job::validate_spec(errors, &at, template);
        if let Some(selector) = present(template, "selector") {
            let detail = "`selector` will be auto-generated";
            errors.invalid(&at.child("selector"), Shown(selector.to_json()), detail);
        }
        if template.get("manualSelector").and_then(Ref::as_bool) == Some(true) {
            errors.not_supported(
                &at.child("manualSelector"),
                Shown("true".into()),
                &["nil", "false"],
            );
        }
    }
    non_negative(errors, &path, spec, "successfulJobsHistoryLimit");
    non_negative(errors, &path, spec, "failedJobsHistoryLimit");
    if spec.str("schedule").is_empty() {
        errors.required(&path.child("schedule"), "");
    }
}

fn validate_schedule(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, old: Option<Ref<'_>>) {
    let text = spec.str("schedule");
    if text.is_empty() {
        return;
    }
    if let Err(problem) = Schedule::parse(text) {
        errors.invalid(path, text, problem);
    }
    if !text.contains("TZ") {
        return;
    }
    let known = old.is_some_and(|old| old.str_at(&["spec", "schedule"]).contains("TZ"));
    if !known {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.invalid(path, text, detail);
    } else if present(spec, "timeZone").is_some() {
        let detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
        errors.invalid(path, text, detail);
    }
}

/// Reports whether a part of a time zone's name has only allowed characters; upstream's pattern.
fn is_zone_part(part: &str) -> bool {
    const MAX_PART: usize = 14;
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_+".contains(c);
    !matches!(part, "" | "." | "..")
        && !part.starts_with('-')
        && part.len() <= MAX_PART
        && part.chars().all(fits)
}

fn validate_time_zone(errors: &mut Errors, path: &Path<'_>, zone: &str) {
    if zone.is_empty() {
        return errors.invalid(path, zone, "timeZone must be nil or non-empty string");
    }
    if !zone.split('/').all(is_zone_part) {
        return errors.invalid(path, zone, format!("unknown time zone {zone}"));
    }
    if zone.eq_ignore_ascii_case("Local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(path, zone, detail);
    }
    if let Err(problem) = time_zone(zone) {
        errors.invalid(path, zone, problem);
    }
}
