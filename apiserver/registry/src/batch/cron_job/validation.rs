//! What makes a CronJob acceptable.

use crate::batch::job::validation as job;
use crate::validation::{Errors, Path, non_negative, present};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;

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
    schedule(errors, &path.child("schedule"), spec, old);
    non_negative(errors, &path, spec, "startingDeadlineSeconds");
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

fn schedule(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, old: Option<Ref<'_>>) {
    let schedule = spec.str("schedule");
    if !schedule.contains("TZ") {
        return;
    }
    let known = old.is_some_and(|old| old.str_at(&["spec", "schedule"]).contains("TZ"));
    if !known {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.invalid(path, schedule, detail);
    } else if present(spec, "timeZone").is_some() {
        let detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
        errors.invalid(path, schedule, detail);
    }
}
