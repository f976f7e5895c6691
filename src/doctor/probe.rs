//! Looks around: programs, variables, folders. No judgement here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The variables that decide how palimpsest is built and how fast it runs.
const VARIABLES: [&str; 8] = [
    "LIBTORCH",
    "LIBTORCH_LIB",
    "LIBTORCH_INCLUDE",
    "LIBTORCH_USE_PYTORCH",
    "LIBTORCH_BYPASS_VERSION_CHECK",
    "OMP_WAIT_POLICY",
    "OMP_NUM_THREADS",
    "VIRTUAL_ENV",
];

/// What was found on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// Whether this binary has the feature `torch`.
    pub built_with_torch: bool,
    /// How many devices libtorch counts; `None` when it cannot be asked.
    pub cuda_devices: Option<i64>,
    /// Whether a driver of NVIDIA is loaded.
    pub has_nvidia: bool,
    /// The project folder, when started inside it.
    pub project: Option<PathBuf>,
    /// What `rustc --version` says.
    pub rustc: Option<String>,
    /// What the C++ compiler calls itself.
    pub compiler: Option<String>,
    /// What `python3 --version` says.
    pub python: Option<String>,
    /// What `python3 -m pip --version` says.
    pub pip: Option<String>,
    /// The version of Python's torch; looked up only when LIBTORCH_USE_PYTORCH is set.
    pub pytorch: Option<String>,
    /// Where `.libtorch` of the project leads.
    pub link: Option<Folder>,
    /// The folder that LIBTORCH names, unless it names `.libtorch`.
    pub stated: Option<Folder>,
    /// Those of the variables that are set.
    pub variables: BTreeMap<String, String>,
    /// How many cores this process may use.
    pub cores: usize,
    /// Memory that can be had without swapping.
    pub memory_mb: Option<u64>,
    /// Room on the disk of the runs folder.
    pub disk_mb: Option<u64>,
    /// Where runs are written.
    pub runs: PathBuf,
    /// Why nothing can be written there.
    pub runs_fault: Option<String>,
}

/// A folder that should hold a libtorch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folder {
    /// As it was named.
    pub path: PathBuf,
    /// Where it leads when it is a link.
    pub target: PathBuf,
    /// Whether there is such a folder.
    pub exists: bool,
    /// What its file build-version says.
    pub version: Option<String>,
    /// Whether the libraries lie in `lib`.
    pub has_libraries: bool,
    /// Whether the headers lie in `include`.
    pub has_headers: bool,
    /// Whether it is a CUDA build.
    pub has_cuda: bool,
}

impl Folder {
    /// Looks into a folder.
    pub fn look(path: &Path) -> Self {
        let any = |names: &[&str]| names.iter().any(|n| path.join("lib").join(n).exists());
        Self {
            path: path.to_owned(),
            target: std::fs::read_link(path).unwrap_or_else(|_| path.to_owned()),
            exists: path.is_dir(),
            version: std::fs::read_to_string(path.join("build-version"))
                .ok()
                .map(|text| text.trim().to_owned()),
            has_libraries: any(&["libtorch.so", "libtorch.dylib", "libtorch.a"])
                && any(&["libtorch_cpu.so", "libtorch_cpu.dylib", "libtorch_cpu.a"]),
            has_headers: path
                .join("include/torch/csrc/api/include/torch/torch.h")
                .exists(),
            has_cuda: any(&["libtorch_cuda.so"]),
        }
    }

    /// Whether one can build against it.
    pub fn is_whole(&self) -> bool {
        self.exists && self.has_libraries && self.has_headers
    }
}

impl Probe {
    /// Looks around on this machine.
    pub fn take(cuda_devices: Option<i64>) -> Self {
        let variables: BTreeMap<String, String> = VARIABLES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
            .collect();
        let here = std::env::current_dir().unwrap_or_default();
        let project = project_above(&here);
        let link = project
            .as_ref()
            .map(|p| p.join(".libtorch"))
            .filter(|path| path.symlink_metadata().is_ok());
        let stated = variables
            .get("LIBTORCH")
            .map(PathBuf::from)
            .filter(|path| project.as_ref().map(|p| p.join(".libtorch")).as_ref() != Some(path));
        let python = if variables.contains_key("VIRTUAL_ENV") {
            "python"
        } else {
            "python3"
        };
        let pytorch = if variables.contains_key("LIBTORCH_USE_PYTORCH") {
            first_line(python, &["-c", "import torch; print(torch.__version__)"])
        } else {
            None
        };
        let runs = here.join("runs");
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        Self {
            built_with_torch: cfg!(feature = "torch"),
            cuda_devices,
            has_nvidia: Path::new("/proc/driver/nvidia/version").exists(),
            rustc: first_line("rustc", &["--version"]),
            compiler: first_line(&compiler, &["--version"]),
            python: first_line(python, &["--version"]),
            pip: first_line(python, &["-m", "pip", "--version"])
                .map(|text| text.split(" from ").next().unwrap_or("").to_owned()),
            pytorch,
            link: link.as_deref().map(Folder::look),
            stated: stated.as_deref().map(Folder::look),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mb: std::fs::read_to_string("/proc/meminfo")
                .ok()
                .as_deref()
                .and_then(available_memory_mb),
            disk_mb: output("df", &["-Pk", &nearest(&runs).display().to_string()])
                .as_deref()
                .and_then(free_disk_mb),
            runs_fault: tempfile::tempfile_in(nearest(&runs))
                .err()
                .map(|error| error.to_string()),
            project,
            variables,
            runs,
        }
    }
}

/// The folder at or above this one that holds palimpsest's Cargo.toml.
pub(super) fn project_above(here: &Path) -> Option<PathBuf> {
    here.ancestors()
        .find(|folder| {
            std::fs::read_to_string(folder.join("Cargo.toml"))
                .is_ok_and(|text| text.lines().any(|l| l.trim() == "name = \"palimpsest\""))
        })
        .map(Path::to_owned)
}

/// The folder itself, or the closest one above it that exists.
fn nearest(folder: &Path) -> &Path {
    folder
        .ancestors()
        .find(|f| f.is_dir())
        .unwrap_or(Path::new("/"))
}

/// The line "MemAvailable:   19000000 kB" of `/proc/meminfo`, in MB.
pub(super) fn available_memory_mb(text: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024 / 1_000_000)
}

/// The fourth column of the last line of `df -Pk`, in MB.
pub(super) fn free_disk_mb(text: &str) -> Option<u64> {
    let line = text.lines().last()?;
    let kib: u64 = line.split_whitespace().nth(3)?.parse().ok()?;
    Some(kib * 1024 / 1_000_000)
}

fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    output(program, arguments)?
        .lines()
        .next()
        .map(|line| line.trim().to_owned())
}

/// What a program prints, when it starts and succeeds.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let done = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|done| done.status.success())?;
    Some(String::from_utf8_lossy(&done.stdout).into_owned())
}
