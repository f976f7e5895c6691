//! Which libtorch a build takes, and whether it is the right one. Pure.

use super::{Check, Folder, Probe, TORCH_VERSION, Verdict};

/// Which libtorch a build takes. torch-sys asks in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    PyTorch,
    Parts,
    Variable,
    Link,
}

pub(super) fn source(p: &Probe) -> Source {
    let set = |name: &str| p.variables.contains_key(name);
    if set("LIBTORCH_USE_PYTORCH") {
        Source::PyTorch
    } else if set("LIBTORCH_LIB") && set("LIBTORCH_INCLUDE") {
        Source::Parts
    } else if p.stated.is_some() {
        Source::Variable
    } else {
        Source::Link
    }
}

/// Build tools matter where there is something to build.
pub(super) fn builds(p: &Probe) -> bool {
    p.project.is_some()
}

pub(super) fn libtorch(p: &Probe) -> Check {
    const NAME: &str = "libtorch in use";
    let wanted = format!("version {TORCH_VERSION}");
    let value = |name: &str| p.variables.get(name).map_or("", String::as_str);
    let check = match source(p) {
        Source::PyTorch => {
            let set = format!(
                "LIBTORCH_USE_PYTORCH=\"{}\" (any value counts, also 0)",
                value("LIBTORCH_USE_PYTORCH")
            );
            match &p.pytorch {
                None => Check::ok(NAME, format!("{set}, but Python imports no torch"), wanted).but(
                    Verdict::Missing,
                    format!("install torch {TORCH_VERSION} for that Python, or unset LIBTORCH_USE_PYTORCH and run: make setup"),
                ),
                Some(v) => version(p, Check::ok(NAME, format!("torch {v} of Python, by {set}"), wanted), Some(v)),
            }
        }
        Source::Parts => Check::ok(
            NAME,
            format!("\"{}\", by LIBTORCH_LIB", value("LIBTORCH_LIB")),
            wanted,
        ),
        Source::Variable => folder(
            p,
            p.stated.as_ref(),
            "by LIBTORCH",
            wanted,
            "correct LIBTORCH, or unset it and run: make setup",
        ),
        Source::Link if !builds(p) => Check::ok(NAME, "no project folder here to build", wanted),
        Source::Link => folder(p, p.link.as_ref(), "by .libtorch", wanted, "make setup"),
    };
    check.required_if(builds(p) && p.built_with_torch)
}

fn folder(p: &Probe, folder: Option<&Folder>, by: &str, wanted: String, mend: &str) -> Check {
    const NAME: &str = "libtorch in use";
    let Some(folder) = folder else {
        return Check::ok(NAME, "none", wanted).but(Verdict::Missing, mend);
    };
    let path = folder.path.display();
    let found = match &folder.version {
        Some(v) => format!("{v} in \"{path}\", {by}"),
        None => format!("\"{path}\", {by}"),
    };
    if !folder.exists {
        return Check::ok(NAME, format!("{found}: no such folder"), wanted)
            .but(Verdict::Missing, mend);
    }
    if !folder.has_libraries {
        return Check::ok(
            NAME,
            format!("{found}: no lib/libtorch.so and lib/libtorch_cpu.so"),
            wanted,
        )
        .but(Verdict::Wrong, mend);
    }
    if !folder.has_headers {
        return Check::ok(NAME, format!("{found}: no include/torch"), wanted)
            .but(Verdict::Wrong, mend);
    }
    version(p, Check::ok(NAME, found, wanted), folder.version.as_deref())
}

fn version(p: &Probe, check: Check, found: Option<&str>) -> Check {
    let plain = found.map(|v| v.split('+').next().unwrap_or(v).trim());
    match plain {
        Some(TORCH_VERSION) => check,
        _ if p.variables.contains_key("LIBTORCH_BYPASS_VERSION_CHECK") => check.but(
            Verdict::Note,
            "LIBTORCH_BYPASS_VERSION_CHECK is set, so the version goes unchecked",
        ),
        None => check.but(
            Verdict::Note,
            "it has no file build-version, so its version goes unchecked",
        ),
        Some(_) => check.but(
            Verdict::Wrong,
            format!("take libtorch {TORCH_VERSION}; unset LIBTORCH and LIBTORCH_USE_PYTORCH and run: make setup"),
        ),
    }
}

pub(super) fn link(p: &Probe) -> Check {
    const NAME: &str = "Link .libtorch";
    let wanted = "leads to a libtorch, unless a variable names one";
    match (&p.project, &p.link) {
        (None, _) => Check::ok(NAME, "no project folder here", wanted),
        (Some(_), Some(f)) if f.exists => {
            Check::ok(NAME, format!("leads to \"{}\"", f.target.display()), wanted)
        }
        (Some(_), Some(f)) => Check::ok(
            NAME,
            format!("leads to \"{}\", which is gone", f.target.display()),
            wanted,
        )
        .but(dead_link(p), "make setup"),
        (Some(_), None) => Check::ok(NAME, "none", wanted).but(dead_link(p), "make setup"),
    }
}

fn dead_link(p: &Probe) -> Verdict {
    if source(p) == Source::Link && p.built_with_torch {
        Verdict::Missing
    } else {
        Verdict::Ok
    }
}

pub(super) fn cuda(p: &Probe) -> Check {
    const NAME: &str = "CUDA";
    let wanted = "a device, if there is one; the CPU will do";
    let used = match source(p) {
        Source::Variable => p.stated.as_ref(),
        Source::Link => p.link.as_ref(),
        Source::PyTorch | Source::Parts => None,
    };
    match (p.cuda_devices, used.map(|f| f.has_cuda)) {
        (Some(n), _) if n > 0 => Check::ok(NAME, format!("{n} visible to libtorch"), wanted),
        (_, Some(false)) if p.has_nvidia => {
            Check::ok(NAME, "a driver is here, libtorch is a CPU build", wanted)
                .but(Verdict::Note, "PALIMPSEST_CUDA=1 make setup")
        }
        (_, Some(false)) => Check::ok(NAME, "libtorch is a CPU build", wanted),
        (Some(_), Some(true)) => {
            Check::ok(NAME, "libtorch is a CUDA build and sees no device", wanted).but(
                Verdict::Note,
                "see that nvidia-smi runs and CUDA_VISIBLE_DEVICES is right; or go back: PALIMPSEST_CUDA=0 make setup",
            )
        }
        (Some(_), None) => Check::ok(NAME, "none visible to libtorch", wanted),
        (None, _) => Check::ok(NAME, "not asked", wanted),
    }
}
