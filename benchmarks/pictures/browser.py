"""Pictures of pages, by Debian's chromium without a window."""
import os
import shutil
import subprocess
import tempfile

BROWSER = "/usr/bin/chromium"


def screenshot(page, picture, width, height):
    """Writes the top of a local page as a PNG of this size in pixels, in light colors. Raises
    RuntimeError if that fails."""
    if not os.access(BROWSER, os.X_OK):
        raise RuntimeError("chromium is missing; scripts/setup --ci installs it")
    with tempfile.TemporaryDirectory() as profile:
        made = os.path.join(profile, "picture.png")
        run = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             f"--user-data-dir={profile}", f"--window-size={width},{height}",
             "--host-resolver-rules=MAP * ~NOTFOUND", f"--screenshot={made}",
             "file://" + os.path.realpath(page)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=120,
            check=False)
        if run.returncode != 0 or not os.path.exists(made):
            last = run.stderr.strip().splitlines() or ["no output"]
            raise RuntimeError(f"chromium made no picture of {page}: {last[-1]}")
        shutil.copyfile(made, picture)
