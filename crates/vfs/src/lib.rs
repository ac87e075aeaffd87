//! The file-system seam and its backends: hostdir, ram, null
