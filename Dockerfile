# The two commands of README.md: docker build -t jaxfl . && docker run --rm -v "$PWD/runs:/jaxfl/runs" jaxfl
FROM python:3.13-slim
WORKDIR /jaxfl
COPY . .
RUN pip install --no-cache-dir -e .
CMD ["jaxfl", "compare"]
