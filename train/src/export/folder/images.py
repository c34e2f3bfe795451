

def pixels(path):  # what does not fit the model's shape is cut off on both sides, and the rest is scaled
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(Image.open(path))
    assert image.mode[0] not in "IF", f"{path} has more than 8 bits for a color; save it with 8"
    image = image.convert("RGB")
    if shape[0] == 1:
        image = Image.fromarray((np.asarray(image, int) @ [2126, 7152, 722] // 10000).astype(np.uint8))
    image = ImageOps.fit(image, (shape[2], shape[1]), Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(shape[1], shape[2], shape[0]).transpose(2, 0, 1)


def images(folder):  # those of the folder, then those of the folders in it
    paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    own = [path for path in paths if path.suffix.lower() in (".png", ".jpg", ".jpeg")]
    return own + [image for path in paths if path.is_dir() for image in images(path)]


path = pathlib.Path(sys.argv[1])
data = b"" if path.is_dir() else path.read_bytes()
data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
if path.is_dir():
    found = images(path)
    assert found, f"{path} has no .png, .jpg or .jpeg"
    x = np.stack([pixels(image) for image in found])
elif data[:4] == b"\x89PNG" or data[:2] == b"\xff\xd8":
    x = pixels(path)[None]
elif data[:4] == b"\0\0\10\3":  # IDX images
    x = np.frombuffer(data, np.uint8, offset=16)
else:  # a table of pixels; its first row may hold their names
    rows = [row[:inputs] for row in csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")) if row]
    is_number = lambda cell: cell.strip().replace(".", "", 1).isdigit()
    x = np.array(rows if all(map(is_number, rows[0])) else rows[1:], float)
x = (x.astype(float) / float(meta["divisor"])).astype(np.float32).reshape(-1, *shape)
