use super::libtorch::{Source, source};
use super::machine::numbers;
use super::probe::{available_memory_mb, free_disk_mb, project_above};
use super::*;
use std::path::{Path, PathBuf};

fn whole(version: &str) -> Folder {
    Folder {
        path: PathBuf::from("/project/.libtorch"),
        target: PathBuf::from("/cache/libtorch"),
        exists: true,
        version: Some(version.to_owned()),
        has_libraries: true,
        has_headers: true,
        has_cuda: false,
    }
}

fn healthy() -> Probe {
    Probe {
        built_with_torch: true,
        cuda_devices: Some(0),
        project: Some(PathBuf::from("/project")),
        rustc: Some("rustc 1.99.0 (abc 2026-01-01)".to_owned()),
        compiler: Some("g++ (Debian) 12.2.0".to_owned()),
        python: Some("Python 3.11.7".to_owned()),
        pip: Some("pip 23.2.1".to_owned()),
        link: Some(whole(TORCH_VERSION)),
        variables: [("OMP_WAIT_POLICY".to_owned(), "passive".to_owned())].into(),
        cores: 2,
        memory_mb: Some(16_000),
        disk_mb: Some(70_000),
        runs: PathBuf::from("/project/runs"),
        ..Probe::default()
    }
}

fn with(change: impl FnOnce(&mut Probe)) -> DoctorReport {
    let mut probe = healthy();
    change(&mut probe);
    examine(&probe)
}

fn set(p: &mut Probe, name: &str, value: &str) {
    p.variables.insert(name.to_owned(), value.to_owned());
}

fn check<'r>(report: &'r DoctorReport, name: &str) -> &'r Check {
    report.checks.iter().find(|c| c.name == name).unwrap()
}

#[test]
fn a_healthy_machine_has_nothing_to_mend() {
    let report = examine(&healthy());
    assert!(
        report
            .checks
            .iter()
            .all(|c| c.verdict == Verdict::Ok && c.mend.is_empty()),
        "{report}"
    );
    assert_eq!(report.exit_code(), 0);
    assert!(report.to_string().contains("Everything required is there."));
}

#[test]
fn whatever_is_not_ok_says_how_to_mend_it() {
    let report = with(|p| {
        *p = Probe {
            built_with_torch: true,
            ..Probe::default()
        }
    });
    for c in report.checks.iter().filter(|c| c.verdict != Verdict::Ok) {
        assert!(!c.mend.is_empty(), "{c:?}");
    }
}

#[test]
fn required_things_that_fail_make_the_exit_code_one() {
    type Case = (&'static str, Verdict, fn(&mut Probe));
    let cases: [Case; 9] = [
        ("Rust", Verdict::Missing, |p| p.rustc = None),
        ("Rust", Verdict::Wrong, |p| {
            p.rustc = Some("rustc 1.9.0".to_owned());
        }),
        ("C++ compiler", Verdict::Missing, |p| p.compiler = None),
        ("libtorch in use", Verdict::Missing, |p| p.link = None),
        ("libtorch in use", Verdict::Wrong, |p| {
            p.link = Some(whole("2.5.0"));
        }),
        ("libtorch in use", Verdict::Wrong, |p| {
            p.link = Some(Folder {
                has_headers: false,
                ..whole(TORCH_VERSION)
            });
        }),
        ("libtorch in use", Verdict::Missing, |p| {
            p.stated = Some(Folder {
                path: "/nowhere".into(),
                ..Folder::default()
            });
        }),
        ("libtorch in use", Verdict::Missing, |p| {
            set(p, "LIBTORCH_USE_PYTORCH", "0");
        }),
        ("Runs folder", Verdict::Wrong, |p| {
            p.runs_fault = Some("permission denied".to_owned());
        }),
    ];
    for (name, verdict, change) in cases {
        let report = with(change);
        assert_eq!(check(&report, name).verdict, verdict, "{report}");
        assert_eq!(report.exit_code(), 1, "{name}\n{report}");
        assert!(!report.to_string().contains("Everything required"));
    }
}

#[test]
fn without_the_feature_torch_no_libtorch_and_no_compiler_is_required() {
    let report = with(|p| {
        p.built_with_torch = false;
        p.link = None;
        p.compiler = None;
        p.pip = None;
    });
    assert_eq!(report.exit_code(), 0, "{report}");
    assert_eq!(check(&report, "This binary").verdict, Verdict::Note);
}

#[test]
fn away_from_the_project_no_build_tool_is_required() {
    let report = with(|p| {
        p.project = None;
        p.rustc = None;
        p.compiler = None;
        p.python = None;
        p.link = None;
    });
    assert_eq!(report.exit_code(), 0, "{report}");
    assert_eq!(check(&report, "libtorch in use").verdict, Verdict::Ok);
}

#[test]
fn python_is_required_only_until_there_is_a_libtorch() {
    assert_eq!(with(|p| p.pip = None).exit_code(), 0);
    let report = with(|p| {
        p.pip = None;
        p.link = None;
    });
    assert!(check(&report, "pip").is_fatal());
}

#[test]
fn pytorch_goes_before_libtorch_and_libtorch_before_the_link() {
    let mut p = healthy();
    assert_eq!(source(&p), Source::Link);
    p.stated = Some(whole(TORCH_VERSION));
    assert_eq!(source(&p), Source::Variable);
    set(&mut p, "LIBTORCH_USE_PYTORCH", "1");
    assert_eq!(source(&p), Source::PyTorch);
}

#[test]
fn a_version_with_a_build_behind_it_is_the_same_version() {
    let report = with(|p| p.link = Some(whole("2.11.0+cu130")));
    assert_eq!(check(&report, "libtorch in use").verdict, Verdict::Ok);
    let report = with(|p| {
        set(p, "LIBTORCH_USE_PYTORCH", "1");
        p.pytorch = Some("2.11.0+cpu".to_owned());
    });
    assert_eq!(check(&report, "libtorch in use").verdict, Verdict::Ok);
}

#[test]
fn cuda_is_told_apart_by_driver_build_and_device() {
    let found = |change: fn(&mut Probe)| {
        let report = with(change);
        let c = check(&report, "CUDA");
        (c.verdict, c.found.clone())
    };
    assert_eq!(found(|p| p.cuda_devices = Some(1)).0, Verdict::Ok);
    assert_eq!(found(|p| p.has_nvidia = true).0, Verdict::Note);
    let cuda_build = |p: &mut Probe| {
        p.link = Some(Folder {
            has_cuda: true,
            ..whole(TORCH_VERSION)
        });
    };
    assert_eq!(found(cuda_build).0, Verdict::Note);
    assert_eq!(found(|_| {}).1, "libtorch is a CPU build");
}

#[test]
fn more_threads_than_cores_and_spinning_threads_are_noted() {
    for (value, verdict) in [
        ("1", Verdict::Ok),
        ("2", Verdict::Ok),
        ("3", Verdict::Note),
        ("0", Verdict::Note),
        ("x", Verdict::Note),
    ] {
        let report = with(|p| set(p, "OMP_NUM_THREADS", value));
        assert_eq!(
            check(&report, "OMP_NUM_THREADS").verdict,
            verdict,
            "{value}"
        );
    }
    let report = with(|p| set(p, "OMP_WAIT_POLICY", "active"));
    assert_eq!(check(&report, "OMP_WAIT_POLICY").verdict, Verdict::Note);
    assert_eq!(report.exit_code(), 0);
}

#[test]
fn versions_are_read_out_of_what_programs_print() {
    assert_eq!(numbers("rustc 1.95.0 (59807616e 2026-03-21)"), [1, 95, 0]);
    assert_eq!(numbers("rustc 1.96.0-nightly"), [1, 96, 0]);
    assert_eq!(numbers("Python 3.8.18"), [3, 8, 18]);
    assert!(numbers("nothing").is_empty());
    assert!(numbers("1.100.0") > numbers("1.95"));
}

#[test]
fn memory_and_disk_are_read_out_of_meminfo_and_df() {
    let text = "MemTotal: 24000000 kB\nMemAvailable:   20000000 kB\n";
    assert_eq!(available_memory_mb(text), Some(20_480));
    assert_eq!(available_memory_mb("MemTotal: 1 kB"), None);
    let text = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/vda 100 20 5000000 20% /a b\n";
    assert_eq!(free_disk_mb(text), Some(5_120));
    assert_eq!(free_disk_mb(""), None);
}

#[test]
fn the_project_is_found_from_a_folder_below_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert_eq!(
        project_above(&root.join("src/doctor")).as_deref(),
        Some(root)
    );
    assert_eq!(project_above(Path::new("/")), None);
}

#[test]
fn setup_and_torch_sys_agree_with_the_doctor_on_the_version() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = std::fs::read_to_string(root.join("scripts/setup.py")).unwrap();
    assert!(script.contains(&format!("\nVERSION = \"{TORCH_VERSION}\"")));
}

#[test]
fn a_real_look_around_can_be_printed() {
    let report = run(None);
    assert_eq!(report.checks.len(), 13);
    assert!(report.to_string().lines().count() >= 13);
}
